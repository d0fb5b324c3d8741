"""`python -m services.agent.pool_host`: the reference pool host, one process with the Python functions of one pool.

It is told its members in `STEER_MEMBERS`, a JSON list of `{name, handler, artifact, env?, timeout_seconds?}`, and listens
on `PORT` before they load. A function takes one argument, the JSON value of the request, and gives one.

    GET  /health/members    200 {"members": {name: {"state": loading|ready|restarting|failed, "error"?}}}
    GET  /healthz           200 once no member is loading, else 503: a pool is up even if a member has failed
    POST /function/<name>   200 with the JSON of what it returned, 204 for None; 400 no JSON; 404 no such member;
                            413 too large; 500 it raised; 503 it is not ready; 504 not in its time

Variables: `HOST` (127.0.0.1), `PORT`, `STEER_CALL_TIMEOUT_SECONDS` (60), `STEER_LOAD_TIMEOUT_SECONDS` (60). On SIGTERM it
ends after the calls that are under way. Only the standard library, so that it starts at once. See `pool_member` for what
members share.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from services.agent.pool_member import Member, NotReady, TookTooLong, install_environment

log = logging.getLogger(__name__)

MEMBERS, CALLS, HEALTH = "/health/members", "/function/", "/healthz"
MAX_REQUEST_BYTES = 8 * 1024 * 1024
BAD_SETTING = 2


class BadSetting(Exception):
    """A variable that cannot be used; the text names it and says why."""


def members_from(environ: Mapping[str, str]) -> dict[str, Member]:
    """The members that `STEER_MEMBERS` names, not loaded yet. Raises `BadSetting`."""
    call_seconds, load_seconds = (_seconds(environ, f"STEER_{what}_TIMEOUT_SECONDS") for what in ("CALL", "LOAD"))
    try:
        rows = json.loads(environ.get("STEER_MEMBERS", ""))
        base = {name: value for name, value in environ.items() if name != "STEER_MEMBERS"}
        members = [
            Member(
                name=str(row["name"]),
                handler=str(row["handler"]),
                artifact=str(row["artifact"]),
                environment=base | {"STEER_FUNCTION": str(row["name"])} | dict(row.get("env", {})),
                call_seconds=float(row.get("timeout_seconds") or call_seconds),
                load_seconds=load_seconds,
            )
            for row in rows
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadSetting(f"STEER_MEMBERS: not a JSON list of members: {type(error).__name__}: {error}") from None
    found = {member.name: member for member in members}
    if len(found) < len(members):
        raise BadSetting("STEER_MEMBERS: two members have one name")
    return found


def _seconds(environ: Mapping[str, str], name: str) -> float:
    text = environ.get(name, "60")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadSetting(f"{name}: {text!r} is no number of seconds")
    return value


class Host(ThreadingHTTPServer):
    """Answers for its members. `load` starts them; closing waits for the requests that are under way."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], members: Mapping[str, Member]) -> None:
        super().__init__(address, _Request)
        self.members = members

    def load(self) -> None:
        for member in self.members.values():
            member.start()

    def states(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for name, member in sorted(self.members.items()):
            state, error = member.state
            found[name] = {"state": state, "error": error} if error else {"state": state}
        return found


class _Request(BaseHTTPRequestHandler):
    server: Host
    timeout = 10  # a client that sends nothing holds up the end for no longer

    def do_GET(self) -> None:
        states = self.server.states()
        if self.path == MEMBERS:
            self._answer(200, {"members": states})
        elif self.path == HEALTH:
            loading = [name for name, each in states.items() if each["state"] == "loading"]
            self._answer(503 if loading else 200, {"loading": loading})
        else:
            self._answer(404, {"error": f"nothing is at {self.path}"})

    def do_POST(self) -> None:
        name = self.path.removeprefix(CALLS)
        member = self.server.members.get(name) if self.path.startswith(CALLS) else None
        if member is None:
            self._answer(404, {"error": f"no function is at {self.path}"})
            return
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or "Transfer-Encoding" in self.headers:
            self._answer(400, {"error": "a request needs its Content-Length"})
        elif int(length) > MAX_REQUEST_BYTES:
            self._answer(413, {"error": f"{length} bytes; at most {MAX_REQUEST_BYTES}"})
        else:
            self._answer(*_call(member, self.rfile.read(int(length))))

    def _answer(self, status: int, value: Any) -> None:
        body = b"" if status == 204 else json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _call(member: Member, body: bytes) -> tuple[int, Any]:
    """The status and the value of the answer to one call."""
    try:
        event = json.loads(body) if body else None
    except ValueError as error:
        return 400, {"error": f"not JSON: {error}"}
    try:
        value = member.call(event)
        json.dumps(value, allow_nan=False)
    except NotReady as error:
        return 503, {"error": str(error)}
    except TookTooLong as error:
        return 504, {"error": str(error)}
    except Exception as error:
        log.exception("%s raised", member.name)
        return 500, {"error": f"{type(error).__name__}: {error}"}
    return (204, None) if value is None else (200, value)


def serve(environ: Mapping[str, str]) -> None:
    """Listen, load, answer, until SIGTERM or SIGINT. Raises `BadSetting`."""
    members = members_from(environ)
    port = environ.get("PORT", "")
    if not port.isdecimal():
        raise BadSetting(f"PORT: {port!r} is no port")
    install_environment()
    with Host((environ.get("HOST", "127.0.0.1"), int(port)), members) as host:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=host.shutdown).start())
        host.load()
        log.info("%d members on port %s", len(members), port)
        host.serve_forever(poll_interval=0.05)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        serve(dict(os.environ))
    except BadSetting as error:
        log.error("%s", error)
        sys.exit(BAD_SETTING)


if __name__ == "__main__":
    main()
