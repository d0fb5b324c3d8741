"""What it costs the services to listen to a fleet at rest: a share of one core each, and no record.

`bench.fleet` sends the heartbeats of all nodes through the real bus at the interval that the scheduler has set. Once the
nodes run nothing, and once they send what each of their replicas uses as well.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import uvloop

from bench.harness import Figure, Options, Row, growth
from bench.raw import Raw
from bench.resting import domains, resting
from bench.settled import settled
from shared import subjects
from shared.model.node import Fleet
from shared.runtime import records

MOST_PERCENT = 10.0
NODES, REPLICAS, HOSTS = 5000, 100_000, 10_000
PLAIN_SECONDS = 60
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
    seconds = options.size(PLAIN_SECONDS, 10)
    plain = uvloop.run(_rest(settled(NODES, 0).log, seconds))
    small = uvloop.run(_rest(settled(NODES // 10, 0).log, seconds))
    size = f"{NODES:,} nodes, {seconds} s"
    yield from _rows(plain, size)
    yield growth("idle, scheduler, one heartbeat", plain.each("scheduler"), small.each("scheduler"), size)
    if options.quick:
        return
    full = uvloop.run(_rest([*settled(NODES, REPLICAS).log, *domains(HOSTS)], 600))
    yield from _rows(full, f"{NODES:,} nodes with {REPLICAS:,} replicas and {HOSTS:,} hosts, 600 s")


def _rows(rest: Rest, size: str) -> Iterator[Row]:
    for name, percent in rest.percent.items():
        yield Figure(
            f"idle, {name}: share of a core", percent, "%", size, target=f"≤ {MOST_PERCENT:g} %",
            met=percent <= MOST_PERCENT,
        )  # fmt: skip
    yield Figure("idle: records written", rest.written, "", size, target="0", met=rest.written == 0)


async def _rest(log: Iterable[Raw], seconds: float) -> Rest:
    async with resting(log) as (on, services):
        fleet = await records.get(on.bus, subjects.FLEET, ())
        assert fleet is not None and isinstance(fleet.record, Fleet), "the scheduler has set no interval"
        nodes = await records.load(on.bus, [subjects.NODE.subject_filter])
        await asyncio.sleep(HEARD_SECONDS)
        written = await on.last_sequence()
        before = {name: process.cpu_seconds() for name, process in services.items()}
        await asyncio.sleep(seconds)
        for process in services.values():
            process.check()
        percent = {name: 100 * (process.cpu_seconds() - before[name]) / seconds for name, process in services.items()}
        rate = len(nodes) / fleet.record.heartbeat_interval_seconds
        return Rest(percent, rate, await on.last_sequence() - written)
