"""Simulated build workers, and what runs them.

A worker does what the reference worker does, as far as the log shows: it takes the order that is for this life of its
own, reports under its token, stops what has no order any more, and sends heartbeats. One that is cut off goes on
building, and reports when it is back: by then its attempt may be another's.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import BaseModel

from shared.model.build_worker import BuildOrder, BuildReport, BuildWorker, WorkerConditions, WorkerScale
from shared.model.live import BuildSample
from shared.service import Sample
from shared.subjects import BUILD_ORDER, BUILD_REPORT, BUILD_WORKER, WORKER_SCALE, Key, Kind

from .faults import Rates
from .process import Process
from .surroundings import Surroundings
from .wire import Stored, put

POOL = "default"
HEARTBEAT_SECONDS = 2.0
READY = WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True)


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
        order = self._log.record(BUILD_ORDER, self.key)
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
        key = (*self.key, order.build.split("/")[2])
        self.later(self._random.uniform(0, 0.2), partial(self._send, BUILD_REPORT, key, report))

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
        around.log.watch(self._wake)

    def _wake(self, stored: Sequence[Stored]) -> None:
        for message in stored:
            if message.kind is BUILD_ORDER:
                for worker in self.workers.values():
                    if worker.key == message.key:
                        worker.look_soon()

    def _tend(self) -> None:
        self._around.timeline.after(self._around.random.uniform(0.2, 2), self._tend)
        scale = self._around.log.record(WORKER_SCALE, (POOL,))
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

    def restart(self, worker: Worker) -> None:
        """Start a worker again, unless it has been given up meanwhile."""
        if worker in self.workers.values():
            worker.start()

    def all_well(self) -> None:
        """Every worker runs, and reaches the log."""
        for worker in list(self.workers.values()):
            worker.start()
            worker.back()
