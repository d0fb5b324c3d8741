"""What a pool host says of its members: polled while it runs, told on change.

A host is a replica that is told its members (`STEER_MEMBERS`). Any host will do that answers `GET /health/members` on its
first HTTP port with `{"members": {name: {"state": loading|ready|restarting|failed}}}`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from shared.model.pool import MEMBERS_VARIABLE
from shared.model.run import RunSpec

PATH = "/health/members"
STATES = ("loading", "ready", "restarting", "failed")
POLL_SECONDS = (0.1, 1.0)
"""Often while a member is on its way, seldom once all have loaded."""
ANSWER_SECONDS = 2.0
MISSES = 3
"""So many answers that fail to come in a row mean that no member is ready any more."""
MAX_ANSWER_BYTES = 1024 * 1024


def is_pool_host(run: RunSpec) -> bool:
    return MEMBERS_VARIABLE in run.env


def port_of(run: RunSpec, ports: Mapping[str, int]) -> int | None:
    """The host port on which functions are called: that of the first HTTP port."""
    return next((ports.get(port.name) for port in run.ports if port.protocol == "http"), None)


async def watch_members(host: str, port: int, tell: Callable[[dict[str, str]], None]) -> None:
    """Poll for ever; `tell` is called with each answer, and with nothing once answers fail to come."""
    misses, delay = 0, POLL_SECONDS[0]
    while True:
        await asyncio.sleep(delay)
        members = await ask_members(host, port)
        misses = 0 if members is not None else misses + 1
        if members is not None or misses >= MISSES:
            tell(members or {})
        on_the_way = members is None or any(state in ("loading", "restarting") for state in members.values())
        delay = POLL_SECONDS[0] if on_the_way and misses < MISSES else POLL_SECONDS[1]


async def ask_members(host: str, port: int) -> dict[str, str] | None:
    """The state of each member; None where there is no answer, or none that can be read."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return _states(await _get(host, port))
    except (TimeoutError, OSError, ValueError, EOFError):
        return None


async def _get(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        writer.write(f"GET {PATH} HTTP/1.0\r\nHost: {authority}\r\nUser-Agent: steersman-agent\r\n\r\n".encode())
        await writer.drain()
        answer = bytearray()
        while chunk := await reader.read(65_536):
            answer += chunk
            if len(answer) > MAX_ANSWER_BYTES:
                raise ValueError(f"more than {MAX_ANSWER_BYTES} bytes")
    finally:
        writer.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError("not answered with 200")
    return body


def _states(body: bytes) -> dict[str, str]:
    answer: Any = orjson.loads(body)
    members = answer.get("members") if isinstance(answer, dict) else None
    if not isinstance(members, dict):
        raise ValueError("no members in the answer")
    states = {name: each.get("state") for name, each in members.items() if isinstance(each, dict)}
    return {name: state for name, state in states.items() if state in STATES}
