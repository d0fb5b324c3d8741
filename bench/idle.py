"""What it costs the services to listen to a fleet at rest: a share of one core each, and no record.

`bench.fleet` sends the heartbeats of all nodes through the real bus at the interval that the scheduler has set. Here the
nodes run nothing. `bench.memory` goes on with nodes that send what each of their replicas uses as well.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import uvloop

from bench.harness import Figure, Options, Row, growth
from bench.process import Process
from bench.processes import Stage
from bench.raw import Raw
from bench.resting import QUIET_SECONDS, resting
from bench.settled import settled
from shared import subjects

MOST_PERCENT = 10.0
NODES, SECONDS = 5000, 20
HEARD_SECONDS = 12
"""Let the first round of heartbeats pass: it wakes every node that has just been loaded."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Percent of a core that each service used, the heartbeats in a second, and the records that were written."""

    percent: Mapping[str, float]
    heartbeats_per_second: float
    written: int

    def each(self, name: str) -> float:
        """What one heartbeat costs a service."""
        return self.percent[name] / self.heartbeats_per_second


def run(options: Options) -> Iterable[Row]:
    nodes, seconds = options.size(NODES, NODES // 10), options.size(SECONDS, 5)
    plain = uvloop.run(_rest(settled(nodes, 0).log, seconds, options))
    yield from rows(plain, f"{nodes:,} nodes", seconds)
    if options.quick:
        return
    small = uvloop.run(_rest(settled(NODES // 10, 0).log, seconds, options))
    size = f"{NODES:,} nodes, {seconds} s"
    yield growth("idle, scheduler, one heartbeat", plain.each("scheduler"), small.each("scheduler"), size)


def rows(rest: Rest, world: str, seconds: float) -> Iterator[Row]:
    size = f"{world}, {rest.heartbeats_per_second:.0f} heartbeats/s, {seconds:.0f} s"
    for name, percent in rest.percent.items():
        yield Figure(
            f"idle, {name}: share of a core", percent, "%", size, target=f"≤ {MOST_PERCENT:g} %",
            met=percent <= MOST_PERCENT,
        )  # fmt: skip
    yield Figure("idle: records written", rest.written, "", size, target="0", met=rest.written == 0)


async def _rest(log: Iterable[Raw], seconds: float, options: Options) -> Rest:
    async with resting(log, options.size(QUIET_SECONDS, 1)) as (on, services):
        await asyncio.sleep(options.size(HEARD_SECONDS, 3))
        return await rest(on, services, seconds)


async def rest(on: Stage, services: Mapping[str, Process], seconds: float) -> Rest:
    """Look at services that have heard every node."""
    heard = 0

    def hear(subject: bytes, reply: bytes, body: bytes, headers: bytes) -> None:
        nonlocal heard
        heard += 1

    await on.bus.take(subjects.live_filter("node"), hear)
    written, heard = await on.last_sequence(), 0
    before = {name: process.cpu_seconds() for name, process in services.items()}
    await asyncio.sleep(seconds)
    for process in services.values():
        process.check()
    percent = {name: 100 * (process.cpu_seconds() - before[name]) / seconds for name, process in services.items()}
    return Rest(percent, heard / seconds, await on.last_sequence() - written)
