"""The worker's loop: look at the order, do what it says, report. Level-triggered: what woke it does not matter.

    no order, or another's   → stop what runs, forget reports that no order asks for
    an order for this life   → run it, once; with `cancel` stop it, and say so

A worker that is told to end takes nothing new, finishes what it builds, takes its record back, and is gone.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import structlog

from services.builder.worker.lines import Lines
from services.builder.worker.process import BuildProcess, Result, end_leftovers
from services.builder.worker.template import environment, fill
from shared import codec, subjects
from shared.errors import InvalidRecord, InvalidSubject, SteerError, Unavailable
from shared.model.build import BuildPool
from shared.model.build_worker import BuildOrder, BuildReport, BuildWorker, ReportState, WorkerConditions
from shared.model.live import BuildSample
from shared.runtime import messages, records, tasks
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.runtime.process import until_stopped
from shared.subjects import Key

log = structlog.get_logger(__name__)

RETRY_SECONDS = 0.5
FLUSH_SECONDS = 30.0
T = TypeVar("T")
READY = WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True)


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Who it is, and what it runs. `drain_seconds` is how long the last build may take once it is told to end."""

    pool: str
    name: str
    ordinal: int
    command: tuple[str, ...]
    directory: Path
    address: str = ""
    node: str = ""
    heartbeat_seconds: float = 10.0
    drain_seconds: float = 600.0


@dataclass(eq=False, slots=True)
class _Running:
    order: BuildOrder
    process: BuildProcess
    task: asyncio.Task[None]


class Worker:
    """`run` until `stop` is set and the build under way has ended."""

    def __init__(self, config: WorkerConfig, bus: Bus) -> None:
        self._config, self._bus = config, bus
        self._key: Key = (config.pool, config.name)
        self._created_at = datetime.now(UTC)
        self._order: BuildOrder | None = None
        self._loaded = False
        self._running: _Running | None = None
        self._finished: set[str] = set()
        self._reports: dict[str, BuildReport | None] = {}
        self._sending = asyncio.Lock()
        self._stored: dict[str, BuildReport] = {}
        self._look = asyncio.Event()
        self._beat = asyncio.Event()
        self._ending = False
        self.heartbeat_seconds = config.heartbeat_seconds

    async def run(self, stop: asyncio.Event) -> None:
        """Raises `Unavailable` when the connection is gone for good."""
        self._config.directory.mkdir(parents=True, exist_ok=True)
        end_leftovers(self._config.directory)
        await self._learn()
        await self._register()
        work = [
            asyncio.create_task(self._follow(), name="follow orders"),
            asyncio.create_task(self._act(), name="act"),
            asyncio.create_task(self._heartbeat(), name="heartbeat"),
        ]
        try:
            await until_stopped(self._bus, stop, work)
            await self._leave()
        finally:
            if self._running is not None:
                self._running.process.cancel()
                await asyncio.gather(self._running.task, return_exceptions=True)
            await tasks.end(*work)

    # -- who it is ------------------------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        """What an earlier life of this name has reported: it is taken back unless an order still asks for it."""
        versions = await insist(
            self._bus, lambda: records.load(self._bus, [subjects.BUILD_REPORT.subject(*self._key, "*")])
        )
        for version in versions:
            if isinstance(version.record, BuildReport):
                self._stored[version.key[2]] = version.record

    async def _register(self, *, deleting: bool = False) -> None:
        record = BuildWorker(
            ordinal=self._config.ordinal,
            phase="running",
            conditions=READY,
            created_at=self._created_at,
            deleting=deleting,
            address=self._config.address,
            node=self._config.node,
        )
        await self._read_pool()
        await insist(self._bus, lambda: records.put(self._bus, subjects.BUILD_WORKER, self._key, record))
        log.info("registered", pool=self._key[0], worker=self._key[1], ordinal=record.ordinal, deleting=deleting)

    async def _read_pool(self) -> None:
        """Heartbeats must be more frequent than the pool's TTL is long."""
        with contextlib.suppress(SteerError):
            version = await records.get_own(self._bus, subjects.BUILD_POOL, self._key[:1])
            pool = version.record if version is not None and isinstance(version.record, BuildPool) else BuildPool()
            self.heartbeat_seconds = min(self._config.heartbeat_seconds, pool.lease_ttl_seconds / 3)

    async def _leave(self) -> None:
        """Take nothing new, finish what is under way, and take the record back."""
        self._ending = True
        await self._register(deleting=True)
        if self._running is not None:
            log.info("ending after this build", build=self._running.order.build)
            await asyncio.wait([self._running.task], timeout=self._config.drain_seconds)
        if self._running is not None:
            self._running.process.cancel()
            await asyncio.wait([self._running.task])
        await self._send_reports()
        await insist(self._bus, lambda: records.put(self._bus, subjects.BUILD_WORKER, self._key, None))

    # -- orders ---------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        follower = Follower(
            self._bus, [subjects.BUILD_ORDER.subject(*self._key)], name=f"worker-{self._key[0]}-{self._key[1]}"
        )
        await follower.start()
        try:
            while True:
                batch = await follower.next(None)
                if isinstance(batch, Restarted):
                    self._loaded = False  # what runs goes on until the order is known again
                    self._order = None
                    continue
                for message in batch:
                    try:
                        record = records.version_of(message).record
                    except (InvalidRecord, InvalidSubject) as error:
                        log.error("an order cannot be read; what runs goes on", reason=str(error))
                        continue
                    self._order = record if isinstance(record, BuildOrder) else None
                self._loaded = self._loaded or follower.caught_up
                self._look.set()
        finally:
            await follower.stop()

    async def _act(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if self._loaded:
                self._pass()
                await self._send_reports()

    def _pass(self) -> None:
        order = self._order
        mine = order if order is not None and order.worker_created_at == self._created_at else None
        running = self._running
        if running is not None and (mine is None or mine.token != running.order.token or mine.cancel):
            running.process.cancel()
            return  # the end of it asks for another look
        if mine is not None and running is None and mine.token not in self._finished:
            if mine.cancel:
                self._finish(mine, "canceled", Result("canceled before it began"))
            elif not self._ending:
                self._start(mine)
        for build, report in list(self._stored.items()):
            if (order is None or report.token != order.token) and build not in self._reports:
                self._reports[build] = None

    def _start(self, order: BuildOrder) -> None:
        directory = self._config.directory / order.token
        directory.mkdir(parents=True, exist_ok=True)
        process = BuildProcess(
            fill(self._config.command, order, self._config.address, directory),
            environment(order, self._config.address, directory, os.environ),
            directory,
        )
        self._report(order, "running")
        task = asyncio.create_task(self._build(order, process, directory), name=f"build {order.build}")
        self._running = _Running(order, process, task)
        self._beat.set()
        log.info("building", build=order.build, attempt=order.attempt)

    async def _build(self, order: BuildOrder, process: BuildProcess, directory: Path) -> None:
        lines = Lines(self._bus, self._key[1], order)
        lines.put(f"--- attempt {order.attempt} on {self._key[1]}")
        try:
            result = await process.run(lines.put)
            state: ReportState = "canceled" if process.canceled else "failed" if result.error else "succeeded"
            lines.put(f"--- {state}{': ' + result.error if result.error else ''}", end=True)
            if not await lines.flush(FLUSH_SECONDS):
                log.warning("not all log lines were stored", build=order.build)
            self._finish(order, state, result)
        except Exception as error:
            log.exception("a build could not be run", build=order.build)
            self._finish(order, "failed", Result(f"the worker could not run it: {error}"))
        finally:
            await lines.close()
            self._running = None
            shutil.rmtree(directory, ignore_errors=True)
            self._look.set()

    def _finish(self, order: BuildOrder, state: ReportState, result: Result) -> None:
        log.info("built", build=order.build, attempt=order.attempt, state=state, error=result.error)
        self._finished.add(order.token)
        self._report(order, state, result)

    # -- reports --------------------------------------------------------------------------------------------------------

    def _report(self, order: BuildOrder, state: ReportState, result: Result | None = None) -> None:
        result = result or Result()
        self._reports[order.build.rpartition("/")[2]] = BuildReport(
            build=order.build,
            attempt=order.attempt,
            token=order.token,
            state=state,
            image_digest=result.digest,
            platforms=result.platforms,
            error=result.error[:4096],
        )
        self._look.set()

    async def _send_reports(self) -> None:
        async with self._sending:  # who leaves sends what is left, while others may be sending it
            while self._reports:
                build, report = next(iter(self._reports.items()))
                await self._store_report((*self._key, build), report)
                if self._reports.get(build) is report:
                    del self._reports[build]
                if report is None:
                    self._stored.pop(build, None)
                else:
                    self._stored[build] = report

    async def _store_report(self, key: Key, report: BuildReport | None) -> None:
        await insist(self._bus, lambda: records.put(self._bus, subjects.BUILD_REPORT, key, report))

    async def _heartbeat(self) -> None:
        while True:
            token = self._running.order.token if self._running is not None else ""
            sample = codec.encode(BuildSample(token=token))
            try:
                await messages.send(self._bus, subjects.live_build(*self._key), sample)
            except Unavailable as error:
                log.debug("a heartbeat was not sent", reason=str(error))
            self._beat.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.heartbeat_seconds):
                    await self._beat.wait()


async def insist(bus: Bus, work: Callable[[], Awaitable[T]]) -> T:
    """Do it until it is done: the bus may be away for a while. Raises what the work raises once it is gone for good."""
    said = False
    while True:
        try:
            return await work()
        except SteerError as error:
            if bus.closed.is_set():
                raise
            if not said:
                said = True
                log.warning("the log does not answer; trying on", reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)
