"""The server restarts under 200 followers, which are all back within a second → each has what it lacked.

One route changes while they are away. Nobody may load the whole again: what each receives is that version, and what a
connection and a consumer cost. The baseline of the bytes is a load of the whole.

All followers are in this process, which would otherwise look for garbage among the tables of all of them.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import uvloop

from bench.following_routes import published
from bench.following_world import FIRST_PORT, address, hostname, instance, place
from bench.harness import Figure, Options, Row, quiet
from bench.processes import Stage, stage
from shared import subjects
from shared.runtime import records, tasks
from shared.runtime.bus import Bus, connect
from shared.runtime.follow import follow_routes
from shared.runtime.settings import Settings

HERD = 200
PATIENCE_SECONDS = 120


@dataclass(slots=True)
class Proxy:
    """One follower. `loads` counts how often it was given the whole."""

    bus: Bus
    served: str = ""
    loads: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        async for version in follow_routes(self.bus):
            self.loads += version.initial
            self.served = version.hosts[hostname(0)].routes[0].endpoints[0].address
            self.changed.set()

    async def serves(self, wanted: str) -> float:
        """Wait for an address; when it was there."""
        while self.served != wanted:
            self.changed.clear()
            await self.changed.wait()
        return perf_counter()

    @property
    def received(self) -> int:
        return int(self.bus.nc.stats["in_bytes"])


@dataclass(frozen=True, slots=True)
class Return:
    """Seconds from the restarted server to the last follower's version; bytes each has received, in the median."""

    seconds: float
    bytes_each: float
    load_bytes_each: float


def run(options: Options) -> Iterable[Row]:
    hosts, herd = options.size(200, 50), options.size(HERD, 50)
    found = uvloop.run(_restart(hosts, herd))
    size = f"{herd} followers of {hosts:,} hosts"
    yield Figure(
        "reconnect of a herd: the last has what it lacks", found.seconds, "s", size,
        target="≤ 1 s", met=found.seconds <= 1,
    )  # fmt: skip
    share = found.bytes_each / found.load_bytes_each
    yield Figure(
        "reconnect of a herd: bytes to each", found.bytes_each, "B", size, found.load_bytes_each, share,
        "≤ 0.5× of a load", met=share <= 0.5,
    )  # fmt: skip


async def _restart(hosts: int, herd: int) -> Return:
    async with stage() as on, AsyncExitStack() as stack:
        await published(on, hosts)
        settings = Settings(nats_url=on.server.url)
        buses = await asyncio.gather(*(connect(settings, f"edge-{n}", patience=30) for n in range(herd)))
        for bus in buses:
            stack.push_async_callback(bus.close)
        proxies = [Proxy(bus) for bus in buses]
        following = [asyncio.create_task(proxy.follow()) for proxy in proxies]
        stack.push_async_callback(tasks.end, *following)
        await _all(proxies, address(0, 0, FIRST_PORT))
        loaded = [proxy.received for proxy in proxies]
        with quiet():
            seconds = await _away(on, proxies)
        if any(proxy.loads != 1 for proxy in proxies):
            raise RuntimeError("a follower has loaded the whole again")
        lacked = [proxy.received - before for proxy, before in zip(proxies, loaded, strict=True)]
        return Return(seconds, median(lacked), median(loaded))


async def _away(on: Stage, proxies: list[Proxy]) -> float:
    """Restart the server, change a route: seconds until the last one serves it."""
    on.server.kill()
    on.server.start(on.folder / "jetstream", on.server.port)
    before = perf_counter()
    await records.put(on.bus, subjects.INSTANCE, place(0, 0), instance(FIRST_PORT + 1))
    await _all(proxies, address(0, 0, FIRST_PORT + 1))
    return perf_counter() - before


async def _all(proxies: list[Proxy], wanted: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(proxy.serves(wanted) for proxy in proxies))
