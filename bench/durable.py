"""Deploy requests published → assignments committed and seen by a follower of all nodes.

The scheduler runs as its own process, five replicas a request, heartbeats of all nodes going on. The baseline writes the
very messages that the scheduler wrote in that time, headers and all, in atomic batches of 1,000, into a fresh log.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import uvloop

from bench.following import read_until
from bench.harness import Figure, Options, Row
from bench.processes import Stage, stage
from bench.raw import BatchWriter, Raw, raw
from bench.settled import REPLICAS, History, environments, nodes, requests
from shared import codec, subjects
from shared.runtime.follower import Follower, Message

ALL = "steer.>"


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds: until the last assignment was seen; to write all of the scheduler's messages; only the assignments."""

    placements: int
    seconds: float
    raw_seconds: float
    raw_assignment_seconds: float


def run(options: Options) -> Iterable[Row]:
    node_count, count = options.size(5000, 500), options.size(20_000, 1000)
    history = _seed(node_count, count)
    runs = [uvloop.run(_once(history, node_count, count)) for _ in range(1 if options.quick else options.runs)]
    placements = count * REPLICAS
    size = f"{count:,} requests × {REPLICAS} on {node_count:,} nodes"
    per_second = median(placements / each.seconds for each in runs)
    baseline = median(placements / each.raw_seconds for each in runs)
    share = median(each.raw_seconds / each.seconds for each in runs)
    met, aim_met = per_second >= 12_000 and share >= 0.35, per_second >= 20_000
    target = "≥ 12,000/s and ≥ 0.35× of raw"
    yield Figure("placements, durable", per_second, "/s", size, baseline, share, target, "≥ 20,000/s", met, aim_met)
    alone = median(placements / each.raw_assignment_seconds for each in runs)
    yield Figure(
        "placements, durable, against raw assignments alone", per_second, "/s", size, alone, per_second / alone
    )


def _seed(node_count: int, count: int) -> History:
    history = History()
    nodes(history, node_count)
    environments(history, count)
    return history


async def _once(history: History, node_count: int, count: int) -> Run:
    wanted = [raw(subjects.DEPLOY.subject(*key), codec.encode(request)) for key, request in requests(count)]
    async with stage() as on:
        writer = BatchWriter(on.bus)
        await writer.write(history.log)
        on.beat(history.node_names())
        await on.scheduler()
        begin = await on.quiet()
        follower = Follower(on.bus, ["steer.assignment.>"], start=begin + 1)
        await follower.start()
        before = perf_counter()
        seen = asyncio.create_task(_see(follower, count * REPLICAS))
        await writer.write(wanted)
        await seen
        seconds = perf_counter() - before
        await follower.stop()
        end = await on.last_sequence()
        written = await _written(on, begin + 1, end)
    everything = [message for message in written if not message.subject.startswith(b"steer.deploy.")]
    assignments = [message for message in everything if message.subject.startswith(b"steer.assignment.")]
    return Run(count * REPLICAS, seconds, await _raw(everything), await _raw(assignments))


async def _see(follower: Follower, count: int) -> None:
    seen = 0

    def done(_: Message) -> bool:
        nonlocal seen
        seen += 1
        return seen >= count

    await read_until(follower, done)


async def _written(on: Stage, begin: int, end: int) -> list[Raw]:
    follower = Follower(on.bus, [ALL], start=begin)
    await follower.start()
    found: list[Raw] = []

    def done(message: Message) -> bool:
        if message.sequence <= end:
            found.append(raw(message.subject, message.body, message.headers))
        return message.sequence >= end

    await read_until(follower, done)
    await follower.stop()
    return found


async def _raw(messages: list[Raw]) -> float:
    """Seconds to store these in a fresh log of the same configuration."""
    bare = [Raw(message.subject, message.body, _without_batch(message.headers)) for message in messages]
    async with stage() as on:
        before = perf_counter()
        await BatchWriter(on.bus).write(bare)
        return perf_counter() - before


def _without_batch(headers: bytes) -> bytes:
    """The headers without those of the batch in which they came, and without the fence."""
    lines = [line for line in headers.split(b"\r\n") if line and not line.startswith(b"Nats-")]
    return b"".join(line + b"\r\n" for line in lines)
