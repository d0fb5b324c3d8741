"""One endpoint changes → a follower has verified the version that says so.

Routes is a process of its own; the follower is `follow_routes` as a proxy uses it, with its acknowledgements. The sizes
are measured in turn, on servers of their own that are there at the same time, so that what the machine does besides hits
each of them. A turn begins when the whole snapshot of the others' routes is written, so that none is written in it.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import uvloop

from bench.following_world import FIRST_PORT, REPLICAS, address, hostname, instance, log_of, place
from bench.harness import Figure, Options, Row, growth, percentile, quiet
from bench.processes import Stage, stage
from bench.raw import BatchWriter
from services.routes.snapshot_writer import read_head
from shared import codec, subjects
from shared.model.route import RouteManifest
from shared.runtime import records
from shared.runtime.follow import RouteVersion, follow_routes

APART_SECONDS = 0.1
BASELINE_HOSTS = 100
SAMPLES, FEW = 200, 40
"""Changes in a turn; few of them where only the median counts."""
WARM_UP = 5
PATIENCE_SECONDS = 60


@dataclass(slots=True)
class Followed:
    """A world whose routes are published, and a follower of them. Times are in seconds."""

    on: Stage
    hosts: int
    first_version: float
    versions: AsyncGenerator[RouteVersion, None]
    changes: int = 0
    version: int = 0
    samples: list[float] = field(default_factory=list)

    async def measure(self, count: int) -> None:
        for _ in range(count):
            took = await self.change()
            self.samples.append(took)
            await asyncio.sleep(max(0.0, APART_SECONDS - took))

    async def rested(self) -> None:
        await self.on.until(self.written, "the route snapshot is not written")

    async def written(self) -> bool:
        """Whether the whole has been written since the last change."""
        head, _ = await read_head(self.on.bus)
        return head is not None and head.version >= self.version

    async def change(self) -> float:
        """A replica of the next host moves to another port: seconds until its address is served."""
        self.changes += 1
        host, replica, port = self.changes % self.hosts, self.changes % REPLICAS, FIRST_PORT + self.changes
        subject, body = subjects.INSTANCE.subject(*place(host, replica)), codec.encode(instance(port))
        name, wanted = hostname(host), address(host, replica, port)
        before = perf_counter()
        await self.on.bus.nc.publish(subject, body)
        await self.on.bus.nc._flush_pending()
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for version in self.versions:
                found = version.hosts.get(name)
                if found is not None and any(wanted == each.address for each in found.routes[0].endpoints):
                    self.version = version.number
                    return perf_counter() - before
        raise RuntimeError("the follower has ended")


def run(options: Options) -> Iterable[Row]:
    hosts = options.size(10_000, 1000)
    worlds = uvloop.run(_worlds(sorted({hosts, hosts // 10, BASELINE_HOSTS}), options))
    full, tenth, base = worlds[hosts], worlds[hosts // 10], worlds[BASELINE_HOSTS]
    size = f"{hosts:,} hosts, {hosts * REPLICAS:,} endpoints, changes {APART_SECONDS * 1e3:.0f} ms apart"
    p50, base_p50 = median(full.samples), median(base.samples)
    p99, base_p99 = percentile(full.samples, 0.99), percentile(base.samples, 0.99)
    yield Figure("route version, p50", p50 * 1e3, "ms", size, base_p50 * 1e3, p50 / base_p50)
    target = f"≤ 12 ms and ≤ 1.5× of {BASELINE_HOSTS} hosts"
    yield Figure(
        "route version, p99", p99 * 1e3, "ms", size, base_p99 * 1e3, p99 / base_p99, target, "≤ 6 ms",
        met=p99 <= 12e-3 and p99 <= 1.5 * base_p99, aim_met=p99 <= 6e-3,
    )  # fmt: skip
    yield growth("route version", p50, median(tenth.samples), size)
    size = f"{hosts:,} hosts, {hosts * REPLICAS:,} endpoints, from the start of the process"
    yield Figure("first version of all routes", full.first_version, "s", size)


async def _worlds(sizes: list[int], options: Options) -> dict[int, Followed]:
    async with AsyncExitStack() as stack:
        worlds: dict[int, Followed] = {}
        for hosts in sizes:
            on = await stack.enter_async_context(stage())
            first_version = await published(on, hosts)
            versions = await stack.enter_async_context(aclosing(follow_routes(on.bus, name="edge-1")))
            worlds[hosts] = Followed(on, hosts, first_version, versions)
            await anext(versions)
        with quiet():
            for world in worlds.values():
                await world.measure(WARM_UP)
                world.samples.clear()
            for _ in range(options.runs):
                for hosts, world in worlds.items():
                    await asyncio.gather(*(each.rested() for each in worlds.values()))
                    count = SAMPLES if hosts in (BASELINE_HOSTS, max(sizes)) else FEW
                    await world.measure(options.size(count, 10))
        return worlds


async def published(on: Stage, hosts: int) -> float:
    """Write a world, start routes, wait until every host is in a version: seconds from the start of the process."""
    await BatchWriter(on.bus).write(log_of(hosts))
    before = perf_counter()
    process = on.start("services.routes")

    async def complete() -> bool:
        process.check()
        manifest = await records.get(on.bus, subjects.ROUTE_MANIFEST, ())
        return manifest is not None and isinstance(manifest.record, RouteManifest) and manifest.record.hosts == hosts

    await on.until(complete, f"{hosts} hosts are not routed")
    took = perf_counter() - before
    await on.quiet()
    return took
