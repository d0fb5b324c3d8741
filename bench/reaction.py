"""One instance dies → the assignment of its replacement is received, in a cluster that is at rest.

The scheduler is a process of its own that has loaded the whole cluster; what dies is reported as an agent does, without
waiting for an acknowledgement. Heartbeats of all nodes go on. The baseline is `bench.echo`.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from random import Random
from statistics import median
from time import perf_counter

import uvloop

from bench.following import read_until
from bench.harness import Figure, Options, Row, growth, percentile
from bench.processes import Stage, stage
from bench.raw import BatchWriter
from bench.settled import History, settled
from shared import codec, subjects
from shared.model.assignment import Instance
from shared.runtime.follower import Follower, Message
from shared.subjects import Key

SAMPLES = 1000
WARM_UP = 50
PAUSE_SECONDS = 0.003

Latencies = tuple[float, float]
"""p50 and p99 in seconds."""


def run(options: Options) -> Iterable[Row]:
    node_count, count = options.size(5000, 500), options.size(100_000, 5000)
    full = settled(node_count, count)
    p50, p99 = uvloop.run(_scheduler(full, options))
    tenth_p50, _ = uvloop.run(_scheduler(settled(node_count // 10, count // 10), options))
    base_p50, base_p99 = uvloop.run(_echo(full, options))
    size = f"{node_count:,} nodes, {count:,} assignments"
    yield _figure("event → decision seen, p50", p50, base_p50, size, "≤ 4 ms", p50 <= 4e-3)
    aim_met = p99 <= 1.5 * base_p99
    yield _figure("event → decision seen, p99", p99, base_p99, size, "≤ 8 ms", p99 <= 8e-3, "≤ 1.5× baseline", aim_met)
    yield growth("event → decision seen", p50, tenth_p50, size)


def _figure(
    figure: str, value: float, baseline: float, size: str, target: str, met: bool, aim: str = "",
    aim_met: bool | None = None,
) -> Figure:  # fmt: skip
    return Figure(figure, value * 1e3, "ms", size, baseline * 1e3, value / baseline, target, aim, met, aim_met)


async def _scheduler(history: History, options: Options) -> Latencies:
    async with stage() as on:
        await BatchWriter(on.bus).write(history.log)
        on.beat(history.node_names())
        await on.scheduler()
        await on.quiet()
        return await _runs(on, history, options)


async def _echo(history: History, options: Options) -> Latencies:
    async with stage() as on:
        on.beat(history.node_names())
        on.start("bench.echo")
        await on.until(on.last_sequence, "the echo does not open its term")
        return await _runs(on, history, options)


async def _runs(on: Stage, history: History, options: Options) -> Latencies:
    """Medians over runs of 1,000 deaths; no workload loses two replicas in all of them."""
    follower = Follower(on.bus, [subjects.ASSIGNMENT.subject_filter], start=await on.last_sequence() + 1)
    await follower.start()
    victims = victims_of(history)
    results: list[Latencies] = []
    per_run = options.size(SAMPLES, 50)
    for _ in range(WARM_UP):
        await die(on, follower, *victims.pop())
    for _ in range(options.runs):
        chosen = [victims.pop() for _ in range(min(per_run, len(victims)))]
        samples = [await die(on, follower, *victim) for victim in chosen]
        results.append((median(samples), percentile(samples, 0.99)))
    await follower.stop()
    return median(p50 for p50, _ in results), median(p99 for _, p99 in results)


def victims_of(history: History) -> list[tuple[Key, int]]:
    """Replicas in random order: the first of each workload, then the second of each, and so on."""
    rounds: dict[str, int] = {}
    ordered: list[tuple[int, Key, int]] = []
    for key, sequence in history.assignments.items():
        app = key[1].rpartition("-")[0]
        rounds[app] = rounds.get(app, 0) + 1
        ordered.append((rounds[app], key, sequence))
    Random(1).shuffle(ordered)
    return [(key, sequence) for _, key, sequence in sorted(ordered, key=lambda item: -item[0])]


async def die(on: Stage, follower: Follower, key: Key, sequence: int) -> float:
    """Seconds from the report until the replacement is seen."""
    await asyncio.sleep(PAUSE_SECONDS)
    before = perf_counter()
    await report_death(on, key, sequence)
    await see(follower, replacement_of(key))
    return perf_counter() - before


async def report_death(on: Stage, key: Key, sequence: int) -> None:
    """As an agent does, but without waiting for the acknowledgement."""
    now = datetime.now(UTC)
    instance = Instance(
        assignment_sequence=sequence, state="failed", exit_code=1, message="exit 1", since=now, healthy_since=now
    )
    await on.bus.nc.publish(subjects.INSTANCE.subject(*key), codec.encode(instance))


def replacement_of(key: Key) -> Callable[[Message], bool]:
    """Whether a message is the assignment that takes the place of this one."""
    wanted = f'"replaces":"{key[1]}"'.encode()
    return lambda message: wanted in message.body


async def see(follower: Follower, *wanted: Callable[[Message], bool]) -> None:
    """Wait until each of these was true of some message."""
    missing = list(wanted)

    def done(message: Message) -> bool:
        missing[:] = [each for each in missing if not each(message)]
        return not missing

    await read_until(follower, done)
