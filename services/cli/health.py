"""`python -m services.cli.health [URL]`: exit code 0 where a process says that it is healthy, else 1 and the reason.

Without a URL it asks the process that shares its environment: `/healthz` on `STEER_METRICS_PORT`. `unix/PATH` is Caddy's
admin API on a socket. Standard library only, so that a container's health check costs little.
"""

import os
import socket
import sys
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

SECONDS = 3.0
UNIX = "unix/"


def url_of(arguments: list[str], environ: Mapping[str, str]) -> str:
    """Where to ask. Raises `ValueError` where nothing tells."""
    if arguments:
        return arguments[0]
    port = environ.get("STEER_METRICS_PORT", "")
    if not port.isdigit():
        raise ValueError("neither a URL nor STEER_METRICS_PORT says where to ask")
    return f"http://127.0.0.1:{port}/healthz"


def problem(url: str) -> str:
    """Empty where the answer is good."""
    try:
        if url.startswith(UNIX):
            return _problem_on(url.removeprefix(UNIX))
        with urlopen(url, timeout=SECONDS):
            return ""
    except HTTPError as error:
        return f"{url}: status {error.code}: {error.read(1000).decode(errors='replace').strip()}"
    except (OSError, HTTPException, ValueError) as error:
        return f"{url}: {error}"


def _problem_on(path: str) -> str:
    connection = HTTPConnection("127.0.0.1", timeout=SECONDS)
    with socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.settimeout(SECONDS)
        connection.sock.connect(path)
        connection.request("GET", "/config/")
        status = connection.getresponse().status
    return "" if status == 200 else f"{path}: status {status}"


def main(arguments: list[str]) -> int:
    try:
        found = problem(url_of(arguments, os.environ))
    except ValueError as error:
        found = str(error)
    if found:
        sys.stderr.write(f"{found}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
