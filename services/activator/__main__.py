"""`python -m services.activator`: run one activator. Each option is also a variable `STEER_ACTIVATOR_<OPTION>`.

How to reach the bus is told by the environment alone, as for every process.
Exit codes: 0 stopped, 1 the connection to the bus is gone for good, 2 a setting cannot be used.
"""

import re
import socket
from pathlib import Path
from typing import Annotated

import typer

import shared.runtime  # noqa: F401 - first, for what its libraries then do not import
from services.activator.run import Config, run_activator
from shared.errors import ConfigurationError
from shared.model.base import NAME_PATTERN
from shared.runtime import logs
from shared.runtime.process import run, starting
from shared.runtime.settings import Settings


def main(
    *,
    name: Annotated[
        str,
        typer.Option(help="Its name among the proxies; by default activator-<host>.", envvar="STEER_ACTIVATOR_NAME"),
    ] = "",
    listen: Annotated[
        str, typer.Option(help="host:port; an empty host listens everywhere.", envvar="STEER_ACTIVATOR_LISTEN")
    ] = "127.0.0.1:8081",
    cache: Annotated[
        Path | None,
        typer.Option(help="A file of routes to serve from while the bus is away.", envvar="STEER_ACTIVATOR_CACHE"),
    ] = None,
) -> None:
    """Hold requests for hosts that are cold or full, wake them, and forward."""
    with starting():
        config = Config(_name(name), _listen(listen), cache)
        settings = Settings.from_environment()
    logs.configure(settings, service="activator", proxy=config.name)
    run(lambda stop: run_activator(settings, config, stop))


def _name(given: str) -> str:
    name = given or f"activator-{socket.gethostname().partition('.')[0].lower()}"[:63]
    if not re.fullmatch(NAME_PATTERN[1:-1], name):
        raise ConfigurationError(f"--name {name!r}: not a DNS-1123 label (a-z, 0-9 and -, at most 63 characters)")
    return name


def _listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535 or " " in host:
        raise ConfigurationError(f"--listen {text!r}: not host:port")
    return text


if __name__ == "__main__":
    typer.run(main)
