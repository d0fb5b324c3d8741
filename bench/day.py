"""A day of load, through the scheduler's core and, beside it, through the formulas of the seed, on one virtual clock.

Both have replicas that take five seconds to become healthy. What is compared: requests that found nothing running,
replica seconds, requests lost after a minute of waiting, and changes of direction within a minute.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil

from pydantic import BaseModel

from bench.harness import Figure, Options, Row
from bench.load import DAY_SECONDS, Caller, Course, Serving, callers
from services.scheduler.service import service
from services.scheduler.state import State
from shared import subjects
from shared.model.activation import Activation
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import Scale
from shared.model.environment import Environment, Replicas, ServiceSpec
from shared.model.live import Demand, NodeSample, ProxySample
from shared.model.node import Capacity, Node
from shared.model.release import DeployRequest, Release
from shared.model.route import Routed
from shared.service import Sample, Version
from shared.subjects import Key, Kind

SCHEDULER = service()
SEED = 20_300_101
START_SECONDS = 5
SAMPLE_SECONDS = 5
NODES = 4
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Result:
    """What a course of load came to, over all environments."""

    cold: int = 0
    lost: int = 0
    held: int = 0
    served: int = 0
    turns: int = 0
    replica_seconds: int = 0
    decisions: int = 0

    @classmethod
    def of(cls, servings: Sequence[Serving], courses: Sequence[Course], decisions: int = 0) -> "Result":
        return cls(
            cold=sum(each.cold for each in servings),
            lost=sum(each.lost for each in servings),
            held=sum(each.held for each in servings),
            served=sum(each.served for each in servings),
            turns=sum(each.turns for each in courses),
            replica_seconds=sum(each.replica_seconds for each in courses),
            decisions=decisions,
        )


@dataclass(slots=True)
class Plane:
    """The scheduler's core with agents, routes and one proxy that do at once what they are asked."""

    state: State = field(default_factory=State)
    now: datetime = EPOCH
    sequence: int = 0
    decisions: int = 0
    wake_at: datetime | None = EPOCH
    running: dict[Key, dict[Key, datetime]] = field(default_factory=dict)
    """The replicas of each environment and when each is healthy."""
    reported: dict[Key, set[Key]] = field(default_factory=dict)
    ending: set[Key] = field(default_factory=set)

    def write(self, kind: Kind, key: Key, record: BaseModel | None) -> None:
        self.sequence += 1
        SCHEDULER.fold(self.state, Version(kind, key, self.sequence, record, self.now))

    def settle(self) -> None:
        """Decide until nothing is left, agents and routes included."""
        while self.state.dirty or (self.wake_at is not None and self.wake_at <= self.now):
            plan = SCHEDULER.decide(self.state, self.now)
            for decision in plan.decisions:
                self.decisions += 1
                for change in decision.changes:
                    self.write(change.kind, change.key, change.record)
                    if change.kind is subjects.ASSIGNMENT:
                        self._agent(change.key, change.record)
            SCHEDULER.settle(self.state, plan, self.now)
            self.wake_at = plan.wake_at
            if not plan.decisions and not self.state.dirty:
                return

    def _agent(self, key: Key, record: BaseModel | None) -> None:
        if not isinstance(record, Assignment):
            return
        environment = tuple(record.workload.key.split("/"))
        if record.desired == "run":
            self.running.setdefault(environment, {})[key] = self.now + timedelta(seconds=START_SECONDS)
        elif record.desired == "drain":
            self.ending.add(key)
            drains = {key[1]: self.sequence}
            self.write(subjects.ROUTED_ENVIRONMENT, environment, Routed(drains=drains, version=self.sequence))
        else:
            self.ending.discard(key)
            self.running.get(environment, {}).pop(key, None)
            self.reported.get(environment, set()).discard(key)
            self._report(key, "stopped")

    def _report(self, key: Key, state: str) -> None:
        sequence = self.state.sequence_of(subjects.ASSIGNMENT, key)
        since = {"healthy_since": self.now} if state == "healthy" else {}
        body = {"assignment_sequence": sequence, "state": state, "since": self.now, **since}
        self.write(subjects.INSTANCE, key, Instance.model_validate(body))

    def healthy(self, environment: Key) -> int:
        """Report those that have become healthy; how many serve."""
        reported = self.reported.setdefault(environment, set())
        for key, at in self.running.get(environment, {}).items():
            if at <= self.now and key not in reported:
                reported.add(key)
                self._report(key, "healthy")
        return sum(key not in self.ending for key in reported)

    def hear(self, demand: dict[str, Demand]) -> None:
        proxy = ProxySample(version=self.sequence + 10**9, demand=demand)
        SCHEDULER.observe(self.state, Sample("proxy", "edge", proxy), self.now)
        for number in range(NODES):
            sample = Sample("node", f"n{number}", NodeSample(interval_seconds=SAMPLE_SECONDS))
            SCHEDULER.observe(self.state, sample, self.now)


def key_of(caller: Caller) -> Key:
    return ("shop", caller.name, "production")


def deployed(load: Sequence[Caller]) -> Plane:
    """Every environment with its release promoted."""
    plane = Plane()
    SCHEDULER.attend(plane.state, plane.now)
    for number in range(NODES):
        capacity = Capacity(cpu_millis=64_000, memory_mb=262_144)
        plane.write(subjects.NODE, (f"n{number}",), Node(capacity=capacity))
    for caller in load:
        key = key_of(caller)
        spec = ServiceSpec(scale_to_zero=caller.to_zero, max_concurrency=caller.concurrency)
        replicas = Replicas(min=1, max=caller.most)
        environment = Environment(replicas=replicas, idle_timeout_seconds=caller.idle_timeout_seconds, service=spec)
        plane.write(subjects.ENVIRONMENT, key, environment)
        plane.write(subjects.RELEASE, (*key, "1"), Release(image="exec:shop", service=spec))
        plane.write(subjects.DEPLOY, (*key, "0" * 26), DeployRequest(version="1"))
    for _ in range(START_SECONDS + 2):
        plane.hear({})
        plane.settle()
        plane.now += timedelta(seconds=1)
        for caller in load:
            plane.healthy(key_of(caller))
    plane.settle()
    return plane


def ours(load: Sequence[Caller], seconds: int) -> Result:
    """The scheduler's core over the load."""
    plane = deployed(load)
    begin = plane.now
    servings = [Serving(caller) for caller in load]
    courses = [Course() for _ in load]
    keys = [key_of(caller) for caller in load]
    asked = [False] * len(load)
    for at in range(seconds):
        plane.now = begin + timedelta(seconds=at)
        demand: dict[str, Demand] = {}
        for index, (key, serving) in enumerate(zip(keys, servings, strict=True)):
            serving.healthy = plane.healthy(key)
            waits = serving.step(at)
            if waits and not asked[index]:
                activation = Activation(requested_at=plane.now, parked=serving.parked)
                plane.write(subjects.ACTIVATION, ("edge", *key), activation)
            asked[index] = waits
            if at % SAMPLE_SECONDS == 0 and serving.last_request_at is not None:
                last = begin + timedelta(seconds=serving.last_request_at)
                held = serving.parked
                demand["/".join(key)] = Demand(inflight=serving.inflight, parked=held, last_request_at=last)
        if at % SAMPLE_SECONDS == 0:
            plane.hear(demand)
        plane.settle()
        for key, course in zip(keys, courses, strict=True):
            scale = plane.state.get(subjects.SCALE, key, Scale)
            width = scale.effective_replicas if scale is not None else 1
            course.note(at, width, len(plane.running.get(key, {})))
    return Result.of(servings, courses, plane.decisions)


@dataclass(slots=True)
class Seeded:
    """One environment under the formulas of the seed: reference sections 9 and 10.

    Serverless, every 5 s: `clamp(ceil(in flight / max_concurrency), floor, max)`. Scale to zero, every 15 s: none after
    the idle timeout. Both see what was in flight at the last sample, every 15 s, never what is parked. A wake makes it
    one; a request that is held does not wake again, and no wake counts within ten seconds of the last.
    """

    caller: Caller
    effective: int = 1
    sampled: int = 0
    last_active: int = 0
    woken_at: int = -100
    starting: list[int] = field(default_factory=lambda: [-START_SECONDS])

    def tick(self, at: int, serving: Serving) -> None:
        if at % 15 == 0:
            self.sampled = serving.inflight
            self.last_active = at if serving.inflight else max(self.last_active, serving.last_request_at or 0)
        if self.caller.concurrency and at % 5 == 0:
            wanted = ceil(self.sampled / self.caller.concurrency)
            self.effective = max(0 if self.caller.to_zero else 1, min(wanted, self.caller.most))
        elif not self.caller.concurrency and at % 15 == 0 and self._idle(at):
            self.effective = 0
        del self.starting[self.effective :]
        self.starting += [at] * (self.effective - len(self.starting))

    def _idle(self, at: int) -> bool:
        return self.effective > 0 and at - self.last_active >= self.caller.idle_timeout_seconds

    def wake(self, at: int) -> None:
        if not self.effective and at - self.woken_at >= 10:
            self.effective, self.woken_at = 1, at
            self.starting.append(at)

    def healthy(self, at: int) -> int:
        return sum(at - began >= START_SECONDS for began in self.starting)


def seeded(load: Sequence[Caller], seconds: int) -> Result:
    """The formulas of the seed over the same load."""
    servings = [Serving(caller) for caller in load]
    courses = [Course() for _ in load]
    scalers = [Seeded(caller) for caller in load]
    holding = [False] * len(load)
    for at in range(seconds):
        for index, (serving, scaler) in enumerate(zip(servings, scalers, strict=True)):
            serving.healthy = scaler.healthy(at)
            waits = serving.step(at)
            if waits and not holding[index]:
                scaler.wake(at)
            holding[index] = waits
            scaler.tick(at, serving)
            courses[index].note(at, scaler.effective, len(scaler.starting))
    return Result.of(servings, courses)


def run(options: Options) -> Iterator[Row]:
    seconds = options.size(DAY_SECONDS, 7200)
    load = callers(SEED, seconds, each=3)
    requests = sum(len(caller.requests) for caller in load)
    size = f"{len(load)} environments, {seconds // 3600} h, {requests:,} requests, seed {SEED}"
    mine, other = ours(load, seconds), seeded(load, seconds)
    compared: tuple[tuple[str, str, Callable[[Result], float]], ...] = (
        ("requests that found nothing running", "", lambda result: result.cold),
        ("requests lost after a minute of waiting", "", lambda result: result.lost),
        ("replica seconds", "s", lambda result: result.replica_seconds),
    )
    for name, unit, value in compared:
        yield Figure(f"day of load: {name}", value(mine), unit, size, baseline=value(other))
    yield Figure(
        "day of load: up-down-up within a minute",
        mine.turns,
        "",
        size,
        baseline=other.turns,
        target="0",
        met=mine.turns == 0,
    )
