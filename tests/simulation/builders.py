"""A world of builds from one seed: two builders, workers that come, go and die, users; then quiet, then order.

The workers do what the reference worker does, as far as the log shows: they take the order that is for this life of
theirs, report under its token, stop what has no order any more, and send heartbeats. One that is cut off goes on
building, and reports when it is back: by then its attempt may be another's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, TypeVar

from pydantic import BaseModel

from services.builder.config import BuilderConfig
from services.builder.service import service
from shared.invariants.logged import Breach
from shared.invariants.moment import Moment
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import (
    BuildOrder,
    BuildReport,
    BuildWorker,
    WorkerConditions,
    WorkerLease,
    WorkerScale,
)
from shared.model.live import BuildSample
from shared.service import Sample
from shared.subjects import (
    BUILD,
    BUILD_ORDER,
    BUILD_POOL,
    BUILD_REPORT,
    BUILD_STATUS,
    BUILD_WORKER,
    WORKER_LEASE,
    WORKER_SCALE,
    Key,
    Kind,
)

from .bus import Bus
from .clock import Timeline
from .faults import Rates
from .follower import QUICK, SLOW
from .interpreter import Instance
from .invariants import Invariants, Violation
from .lease import Leases
from .log import Log
from .process import Process
from .surroundings import Surroundings
from .wire import Stored, put

POOL = "default"
OWNERS = ("a", "b", "c")
HEARTBEAT_SECONDS = 2.0
FAULTY_SECONDS = 120.0
QUIET_SECONDS = 3600.0
READY = WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True)
M = TypeVar("M", bound=BaseModel)


class Worker(Process):
    """One worker; its process may be killed and started again under the same name."""

    def __init__(self, ordinal: int, around: Surroundings, rates: Rates, telemetry: Callable[[Sample], None]) -> None:
        super().__init__(f"w-{ordinal}", around.timeline)
        self.key = (POOL, self.name)
        self._ordinal = ordinal
        self._log, self._random, self._rates, self._telemetry = around.log, around.random, rates, telemetry
        self.cut_off = False
        self._held_back: list[Callable[[], None]] = []

    def started(self) -> None:
        self._created_at: datetime = self.timeline.now
        self._running: BuildOrder | None = None
        self._done: set[str] = set()
        self._register("pending")
        self.later(self._random.uniform(0.05, 2), self._ready)

    def back(self) -> None:
        """What could not be sent while it was cut off is sent now."""
        self.cut_off = False
        held, self._held_back = self._held_back, []
        for send in held:
            send()
        self.look_soon()

    def _ready(self) -> None:
        self._register("running")
        self.look_soon()
        self._beat()

    def _register(self, phase: Any) -> None:
        conditions = READY if phase == "running" else WorkerConditions()
        record = BuildWorker(ordinal=self._ordinal, phase=phase, created_at=self._created_at, conditions=conditions)
        self._send(BUILD_WORKER, self.key, record)

    def _send(self, kind: Kind, key: Key, record: BaseModel | None) -> None:
        if self.cut_off:
            self._held_back.append(self.guard(partial(self._send, kind, key, record)))
            return
        self._log.publish(put(kind, key, record))
        if record is not None and self._random.random() < self._rates.duplicate_report:
            self._log.publish(put(kind, key, record))

    def look_soon(self) -> None:
        if self.up:
            self.later(self._random.uniform(0.001, 0.05), self._look)

    def _look(self) -> None:
        """Level-triggered: run what the order says, stop what it does not say, forget what is over."""
        if self.cut_off:
            return
        order = self._log.current(BUILD_ORDER).get(self.key)
        wanted = order if isinstance(order, BuildOrder) and order.worker_created_at == self._created_at else None
        running = self._running
        if running is not None and (wanted is None or wanted.token != running.token or wanted.cancel):
            self._running = None
            self._report(running, "canceled")
        if wanted is not None and self._running is None and wanted.token not in self._done and not wanted.cancel:
            self._running = wanted
            self._report(wanted, "running")
            self.later(self._random.expovariate(1 / 5), partial(self._finish, wanted))
        for key, report in self._log.current(BUILD_REPORT).items():
            stale = (
                not isinstance(order, BuildOrder) or not isinstance(report, BuildReport) or report.token != order.token
            )
            if key[:2] == self.key and stale:
                self._send(BUILD_REPORT, key, None)

    def _finish(self, order: BuildOrder) -> None:
        if self._running is order:
            self._running = None
            self._report(order, "failed" if self._random.random() < 0.1 else "succeeded")

    def _report(self, order: BuildOrder, state: Any) -> None:
        if state != "running":
            self._done.add(order.token)
        report = BuildReport(
            build=order.build,
            attempt=order.attempt,
            token=order.token,
            state=state,
            image_digest="sha256:1" if state == "succeeded" else "",
        )
        self.later(
            self._random.uniform(0, 0.2),
            partial(self._send, BUILD_REPORT, (*self.key, order.build.split("/")[2]), report),
        )

    def _beat(self) -> None:
        self.later(HEARTBEAT_SECONDS, self._beat)
        if not self.cut_off and self._random.random() >= self._rates.lost_sample:
            token = self._running.token if self._running is not None else ""
            self._telemetry(Sample("build", "/".join(self.key), BuildSample(token=token)))


class Workers:
    """What runs the workers: it follows the scale, and starts anew what it is told to replace."""

    def __init__(self, around: Surroundings, rates: Rates, telemetry: Callable[[Sample], None]) -> None:
        self._around, self._rates, self._telemetry = around, rates, telemetry
        self.workers: dict[int, Worker] = {}
        self._tend()

    def _tend(self) -> None:
        self._around.timeline.after(self._around.random.uniform(0.2, 2), self._tend)
        scale = self._around.log.current(WORKER_SCALE).get((POOL,))
        wanted = scale.replicas if isinstance(scale, WorkerScale) else 0
        replace = scale.replace if isinstance(scale, WorkerScale) else ()
        for ordinal, worker in list(self.workers.items()):
            if ordinal >= wanted or worker.name in replace:
                worker.crash()
                self._around.log.publish(put(BUILD_WORKER, worker.key, None))
                del self.workers[ordinal]
        for ordinal in range(wanted):
            if ordinal not in self.workers:
                worker = Worker(ordinal, self._around, self._rates, self._telemetry)
                self.workers[ordinal] = worker
                worker.start()


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
        self.pool = BuildPool(
            min_workers=random.choice((0, 0, 1)),
            max_workers=random.randint(1, 4),
            max_idle_seconds=20,
            lease_ttl_seconds=10,
            owner_limit=random.choice((None, 1, 2)),
            max_attempts=random.choice((2, 4)),
            ready_timeout_seconds=10,
            queue_timeout_seconds=1000,
            build_timeout_seconds=60,
        )
        bus = Bus(log, timeline, random, self.rates, replicated=random.random() < 0.5)
        around = Surroundings(timeline, random, log, bus, Leases(timeline, 3))
        self.succeeded = Succeeded()
        log.watch(Invariants(log, self.succeeded))
        config = BuilderConfig(registry_address="r")
        self.instances: list[Instance[Any]] = [
            Instance(service(config), f"builder-{number}", around) for number in (0, 1)
        ]
        log.publish(put(BUILD_POOL, (POOL,), self.pool))
        self.workers = Workers(around, self.rates, self._telemetry)
        log.watch(self._wake_workers)
        self.requested: list[Key] = []
        self.active = True

    def run(self) -> None:
        for instance in self.instances:
            instance.start()
        self.timeline.after(1, self._use)
        self.timeline.after(3, self._trouble)
        self.timeline.run(FAULTY_SECONDS)
        self.active = False
        self.rates.calm()
        for instance in self.instances:
            instance.follower.delay_seconds = QUICK
            instance.resume()
            instance.start()
        for worker in list(self.workers.workers.values()):
            worker.start()
            worker.back()
        self._converge()

    # -- what happens ---------------------------------------------------------------------------------------------------

    def _use(self) -> None:
        if not self.active:
            return
        self.timeline.after(self.random.expovariate(1 / 2), self._use)
        what = self.random.random()
        if what < 0.7 or not self.requested:
            new: Key = ("shop", self.random.choice(("web", "api")), f"{len(self.requested) + 1:026d}")
            request = BuildRequest(
                owner=self.random.choice(OWNERS),
                source_digest="d",
                cache_key=self.random.choice(("", "x", "y")),
                canceled=self.random.random() < 0.05,
            )
            self.requested.append(new)
            self.log.publish(put(BUILD, new, request))
            return
        key = self.random.choice(self.requested[-10:])
        request_now = self.log.current(BUILD).get(key)
        if isinstance(request_now, BuildRequest):
            canceled = request_now.model_copy(update={"canceled": True})
            self.log.publish(put(BUILD, key, canceled if what < 0.9 else None))

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
                self.timeline.after(wait, partial(self._restart, victim))
            case _:
                assert victim is not None
                victim.cut_off = True
                self.timeline.after(wait, victim.back)

    def _restart(self, worker: Worker) -> None:
        if worker in self.workers.workers.values():
            worker.start()

    def _telemetry(self, sample: Sample) -> None:
        for instance in self.instances:
            if instance.up:
                instance.later(self.random.uniform(0.001, 0.05), partial(instance.observe, sample))

    def _wake_workers(self, stored: Sequence[Stored]) -> None:
        for message in stored:
            if message.kind is BUILD_ORDER:
                for worker in self.workers.workers.values():
                    if worker.key == message.key:
                        worker.look_soon()

    # -- what must come of it -------------------------------------------------------------------------------------------

    def _converge(self) -> None:
        unmet = "nothing was looked at"
        end = self.timeline.seconds + QUIET_SECONDS
        while self.timeline.seconds < end:
            self.timeline.run(5)
            unmet = "; ".join(self._unmet())
            if not unmet:
                return
        raise Violation("liveness", unmet)

    def _unmet(self) -> Iterable[str]:
        requests = self._all(BUILD, BuildRequest)
        statuses = self._all(BUILD_STATUS, BuildStatus)
        if open_ones := [key[2].lstrip("0") for key, status in statuses.items() if not status.terminal]:
            yield f"builds {open_ones} are not done"
        if set(requests) != set(statuses):
            yield f"requests and statuses differ: {set(requests) ^ set(statuses)}"
        if orders := self._all(BUILD_ORDER, BuildOrder):
            yield f"orders are left: {sorted(orders)}"
        if leased := [key for key, lease in self._all(WORKER_LEASE, WorkerLease).items() if lease.token]:
            yield f"leases are left: {leased}"
        scale = self._all(WORKER_SCALE, WorkerScale).get((POOL,))
        if scale is None or scale.replicas != self.pool.min_workers or scale.replace:
            yield f"the scale is {scale}"
        if {key[1] for key in self._all(BUILD_WORKER, BuildWorker)} != {
            worker.name for worker in self.workers.workers.values()
        }:
            yield "the workers differ from their records"
        if any(instance.leading and instance.busy for instance in self.instances):
            yield "a builder has something to decide"
        if not any(instance.leading for instance in self.instances):
            yield "nobody leads"

    def _all(self, kind: Kind, model: type[M]) -> dict[Key, M]:
        return {key: record for key, record in self.log.current(kind).items() if isinstance(record, model)}
