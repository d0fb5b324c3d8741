"""As large as one log is meant for: 10,000 nodes and 200,000 replicas under all four services, and a release of many.

A thousand environments get a new release at once: their new replicas start and are promoted, the old ones are drained
and gone. Meanwhile it is noted how much memory each service holds and how far it falls behind the log; none may end or
load anew. Before that, replicas die one by one. The same at a tenth says what one decision costs there.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from time import monotonic, perf_counter

import uvloop

from bench.following import read_until
from bench.harness import Figure, Options, Row, growth
from bench.memory import MOST_MB
from bench.process import Process
from bench.processes import Stage
from bench.raw import BatchWriter, Raw, raw
from bench.reaction import die, victims_of
from bench.resting import QUIET_SECONDS, domains, resting
from bench.settled import REPLICAS, History, environment_key, settled, spec_of
from services.scheduler.replace import PROXY_LIVE_SECONDS
from shared import codec, subjects
from shared.model.deployment import Deployment
from shared.model.environment import Environment, Replicas
from shared.model.release import DeployRequest, Release
from shared.runtime import records
from shared.runtime.encode import is_tombstone
from shared.runtime.follower import Follower, Message

WATCH_SECONDS = 1.0
DEATHS = 200
IDLE_SECONDS = 5.0
ID = f"{10**9:026d}"
"""Behind those of the first requests."""


@dataclass(slots=True)
class Watched:
    """The most that was seen of each service: megabytes, and messages of the log that waited for it."""

    resident_mb: dict[str, float] = field(default_factory=dict)
    lag: dict[str, float] = field(default_factory=dict)

    async def look(self, services: Mapping[str, Process]) -> None:
        """Raises where one has ended, or had to load anew."""
        for name, process in services.items():
            process.check()
            metrics = await process.metrics()
            assert not metrics["steer_restarts_total"], f"the {name} had to load anew"
            self.resident_mb[name] = max(self.resident_mb.get(name, 0), process.resident_mb())
            self.lag[name] = max(self.lag.get(name, 0), metrics["steer_log_lag_messages"])


@dataclass(frozen=True, slots=True)
class Run:
    """Of one size: seconds until a replacement is seen and for the whole release, and the scheduler's CPU seconds for
    each decision of it, without those in which it would have listened to heartbeats anyway."""

    replaced: float
    release: float
    each_decision: float
    watched: Watched


def run(options: Options) -> Iterable[Row]:
    nodes, assignments = options.size(10_000, 300), options.size(200_000, 3000)
    count, hosts = options.size(1000, 20), options.size(10_000, 100)
    full = uvloop.run(_run(settled(nodes, assignments), count, hosts, options))
    size = f"{nodes:,} nodes, {assignments:,} assignments, {hosts:,} hosts"
    released = f"{size}; {count:,} environments"
    yield Figure("scale, release of many: until all is done", full.release, "s", released, target="completes", met=True)
    yield from _watched(full.watched, released)
    yield Figure("scale, event → decision seen, p50", full.replaced * 1e3, "ms", size)
    yield Figure("scale, scheduler's CPU for one decision of the release", full.each_decision * 1e6, "µs", released)
    if options.quick:
        return
    small = uvloop.run(_run(settled(nodes // 10, assignments // 10), count // 10, hosts // 10, options))
    yield growth("scale, event → decision seen", full.replaced, small.replaced, size)
    yield growth("scale, one decision of the release", full.each_decision, small.each_decision, released)


def _watched(watched: Watched, size: str) -> Iterator[Row]:
    for name, megabytes in watched.resident_mb.items():
        yield Figure(
            f"scale, most memory of the {name}", megabytes, "MB", size, aim=f"≤ {MOST_MB} MB",
            aim_met=megabytes <= MOST_MB,
        )  # fmt: skip
    slowest = max(watched.lag, key=lambda name: watched.lag[name])
    yield Figure(f"scale, most lag behind the log, of the {slowest}", watched.lag[slowest], "messages", size)


async def _run(history: History, count: int, hosts: int, options: Options) -> Run:
    log = [*history.log, *domains(hosts)]
    async with resting(log, options.size(QUIET_SECONDS, 1)) as (on, services), _watching(services) as watched:
        begin = monotonic()
        replaced = await _deaths(on, history)
        await on.quiet()
        idle, _ = await _spent(services["scheduler"])
        await asyncio.sleep(IDLE_SECONDS)
        cpu, decisions = await _spent(services["scheduler"])
        idle = (cpu - idle) / IDLE_SECONDS
        await asyncio.sleep(begin + PROXY_LIVE_SECONDS - monotonic())  # a new leader lets nothing go before that
        release = await _release(on, count)
        cpu_after, decisions_after = await _spent(services["scheduler"])
        await watched.look(services)
        each = max(0.0, cpu_after - cpu - idle * release) / (decisions_after - decisions)
        return Run(replaced, release, each, watched)


async def _spent(scheduler: Process) -> tuple[float, float]:
    """Its CPU seconds and its decisions so far."""
    return scheduler.cpu_seconds(), (await scheduler.metrics())["steer_decisions_total"]


@asynccontextmanager
async def _watching(services: Mapping[str, Process]) -> AsyncIterator[Watched]:
    watched = Watched()

    async def watch() -> None:
        while True:
            await watched.look(services)
            await asyncio.sleep(WATCH_SECONDS)

    task = asyncio.create_task(watch())
    try:
        yield watched
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _deaths(on: Stage, history: History) -> float:
    """The median of seconds from the death of a replica to its replacement."""
    follower = Follower(on.bus, [subjects.ASSIGNMENT.subject_filter], start=await on.last_sequence() + 1)
    await follower.start()
    victims = victims_of(history)
    samples = [await die(on, follower, *victims.pop()) for _ in range(min(DEATHS, len(victims) // 10))]
    await follower.stop()
    return median(samples)


async def _release(on: Stage, count: int) -> float:
    """Seconds until every deployment has succeeded and every old replica is gone."""
    filters = [subjects.DEPLOYMENT.subject_filter, subjects.ASSIGNMENT.subject_filter]
    follower = Follower(on.bus, filters, start=await on.last_sequence() + 1)
    await follower.start()
    before = perf_counter()
    await BatchWriter(on.bus).write(_requests(count))
    succeeded: set[str] = set()
    gone: set[str] = set()

    apps = {environment_key(number)[1] for number in range(count)}

    def done(message: Message) -> bool:
        if is_tombstone(message.headers):
            if message.subject.rpartition(".")[2].rpartition("-")[0] in apps:
                gone.add(message.subject)
        elif message.subject.endswith(ID):
            deployment = records.version_of(message).record
            assert isinstance(deployment, Deployment)
            assert deployment.phase not in {"failed", "canceled", "superseded"}, f"{message.subject}: {deployment}"
            if deployment.phase == "succeeded":
                succeeded.add(message.subject)
        return len(succeeded) >= count and len(gone) >= count * REPLICAS

    await read_until(follower, done)
    await follower.stop()
    return perf_counter() - before


def _requests(count: int) -> Iterator[Raw]:
    """A second release for the first environments, whose old replicas are to go at once."""
    for number in range(count):
        key, spec = environment_key(number), spec_of(number)
        environment = Environment(replicas=Replicas(min=REPLICAS), drain_window_seconds=0, service=spec)
        release = Release(image="exec:shop-2", service=spec)
        yield raw(subjects.ENVIRONMENT.subject(*key), codec.encode(environment))
        yield raw(subjects.RELEASE.subject(*key, "2"), codec.encode(release))
        yield raw(subjects.DEPLOY.subject(*key, ID), codec.encode(DeployRequest(version="2")))
