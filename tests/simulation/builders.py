"""A world of builds alone from one seed: two builders, workers that come, go and die, users; then quiet, then order."""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

from services.builder.config import BuilderConfig
from services.builder.service import service
from shared.invariants.logged import Breach
from shared.invariants.moment import Moment
from shared.model.build import BuildStatus
from shared.service import Sample
from shared.subjects import BUILD_STATUS, Key

from .build_order import unmet_builds
from .build_users import BuildUsers
from .build_workers import Workers
from .bus import Bus
from .clock import Timeline
from .faults import Rates
from .follower import QUICK, SLOW
from .interpreter import Instance
from .invariants import Invariants, Violation
from .lease import Leases
from .log import Log
from .surroundings import Surroundings

FAULTY_SECONDS = 120.0
QUIET_SECONDS = 3600.0


class Succeeded:
    """How often each build has become a success."""

    def __init__(self) -> None:
        self.times: dict[Key, int] = {}

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for version in moment.versions:
            before = moment.view.get(BUILD_STATUS, version.key, BuildStatus, moment.first - 1)
            ended = before is not None and before.terminal
            if isinstance(version.record, BuildStatus) and version.record.state == "succeeded" and not ended:
                self.times[version.key] = self.times.get(version.key, 0) + 1
        yield from ()


class BuilderWorld:
    """`run` raises `Violation` for what must never happen, and for what should have happened by the end."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.timeline = timeline = Timeline()
        self.log = log = Log(lambda: timeline.now)
        bad = random.choice((0.0, 0.01, 0.05))
        self.rates = Rates(
            refused=bad, lost_answer=bad, late_landing=bad, lost_request=bad, lost_renewal=2 * bad,
            duplicate_report=0.05, lost_sample=random.choice((0.0, 0.1)),
        )  # fmt: skip
        self.users = BuildUsers(log, timeline, random, 2)
        bus = Bus(log, timeline, random, self.rates, replicated=random.random() < 0.5)
        around = Surroundings(timeline, random, log, bus, Leases(timeline, 3))
        self.succeeded = Succeeded()
        log.watch(Invariants(log, self.succeeded))
        config = BuilderConfig(registry_address="r")
        self.instances: list[Instance[Any]] = [
            Instance(service(config), f"builder-{number}", around) for number in (0, 1)
        ]
        self.workers = Workers(around, self.rates, self._telemetry)
        self.active = True

    def run(self) -> None:
        for instance in self.instances:
            instance.start()
        self.users.begin()
        self.timeline.after(3, self._trouble)
        self.timeline.run(FAULTY_SECONDS)
        self.active = False
        self.users.rest()
        self.rates.calm()
        for instance in self.instances:
            instance.follower.delay_seconds = QUICK
            instance.resume()
            instance.start()
        self.workers.all_well()
        self._converge()

    def _trouble(self) -> None:
        if not self.active:
            return
        self.timeline.after(self.random.uniform(1, 10), self._trouble)
        wait = self.random.choice((self.random.uniform(0.3, 5), self.random.uniform(5, 30)))
        victim = self.random.choice(list(self.workers.workers.values()) or [None])
        instance = self.random.choice(self.instances)
        match self.random.randrange(6 if victim is not None else 4):
            case 0:
                instance.crash()
                self.timeline.after(wait / 4, instance.start)
            case 1:
                instance.pause()
                self.timeline.after(wait, instance.resume)
            case 2:
                instance.stop()
                self.timeline.after(wait / 4, instance.start)
            case 3:
                instance.follower.delay_seconds = SLOW
                self.timeline.after(wait, partial(setattr, instance.follower, "delay_seconds", QUICK))
            case 4:
                assert victim is not None
                victim.crash()
                self.timeline.after(wait, partial(self.workers.restart, victim))
            case _:
                assert victim is not None
                victim.cut_off = True
                self.timeline.after(wait, victim.back)

    def _telemetry(self, sample: Sample) -> None:
        for instance in self.instances:
            if instance.up:
                instance.later(self.random.uniform(0.001, 0.05), partial(instance.observe, sample))

    def _converge(self) -> None:
        unmet = "nothing was looked at"
        end = self.timeline.seconds + QUIET_SECONDS
        while self.timeline.seconds < end:
            self.timeline.run(5)
            unmet = next(unmet_builds(self.log, self.users.pool, self.workers), "") or self._services()
            if not unmet:
                return
        raise Violation("liveness", unmet)

    def _services(self) -> str:
        leaders = [instance for instance in self.instances if instance.leading]
        if len(leaders) != 1:
            return f"there are {len(leaders)} leaders"
        return "the builder has something to decide" if leaders[0].busy else ""
