"""Continuous requests through the routes, as a proxy sends them: it follows, picks an endpoint, and tries the next one
where a connection breaks. What it serves it acknowledges, so replicas are stopped only when it has moved on.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from shared.runtime import tasks
from shared.runtime.bus import Bus
from shared.runtime.follow import RouteVersion, follow_routes, match

REQUEST_SECONDS = 10.0
PAUSE_SECONDS = 0.02
ATTEMPTS = 3


@dataclass
class Tally:
    """What came of the requests. `answers` counts by path and by what `read` made of the body."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    retried: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return self.answers.total() + len(self.failed)


class Traffic:
    """Requests for paths of one host, from `start` to `stop`. `read` tells from a body which release answered."""

    def __init__(self, bus: Bus, host: str, paths: tuple[str, ...], read: Callable[[str], str]) -> None:
        self._bus = bus
        self._host = host
        self._paths = paths
        self._read = read
        self._turn = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self.version: RouteVersion | None = None
        self.tally = Tally()

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._follow(), name="follow the routes")]

    async def stop(self) -> None:
        await tasks.end(*self._tasks)

    def send(self) -> None:
        """Begin to send; before, the routes are only followed."""
        self._tasks += [asyncio.create_task(self._keep_sending(path), name=f"request {path}") for path in self._paths]

    def endpoints(self, path: str) -> int:
        """How many replicas the routes have for a path now."""
        route = match(self.version, self._host, path) if self.version else None
        return len(route.endpoints) if route else 0

    def answered(self, path: str, release: str) -> int:
        return self.tally.answers[path, release]

    async def _follow(self) -> None:
        async with aclosing(follow_routes(self._bus, name="demo")) as versions:
            async for version in versions:
                self.version = version

    async def _keep_sending(self, path: str) -> None:
        while True:
            await self._request(path)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _request(self, path: str) -> None:
        reason = "no route"
        for attempt in range(ATTEMPTS):
            address = self._address(path)
            if address is None:
                break
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    status, body = await get(address, self._host, path)
            except (OSError, EOFError, TimeoutError, ValueError) as error:
                reason = f"{address}: {error or type(error).__name__}"
                self.tally.retried += attempt + 1 < ATTEMPTS
                continue
            if status != 200:
                reason = f"{address}: status {status}"
                break
            self.tally.answers[path, self._read(body)] += 1
            return
        self.tally.failed.append(f"{path}: {reason}")

    def _address(self, path: str) -> str | None:
        route = match(self.version, self._host, path) if self.version else None
        if route is None or not route.endpoints:
            return None
        return route.endpoints[next(self._turn) % len(route.endpoints)].address


async def get(address: str, host: str, path: str) -> tuple[int, str]:
    """Status and body. Raises `OSError`, `EOFError` or `ValueError` where there is no whole answer."""
    name, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head, separator, body = (await reader.read()).partition(b"\r\n\r\n")
        if not separator:
            raise EOFError("the connection ended before the answer")
        return int(head.split()[1]), body.decode()
    finally:
        writer.close()
