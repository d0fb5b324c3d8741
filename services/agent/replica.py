"""The life of one replica: start or adopt, watch for its exit, probe, stop. It is started at most once.

What is known of it is one value, its `Entry`: each change replaces it, writes it to the journal and tells the agent. So
a report never lacks a field that an earlier one had.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from services.agent.driver import Driver, DriverError, Exit, Handle, Launch
from services.agent.health import Health, after_probe, delay_seconds
from services.agent.journal import Entry, Journal
from services.agent.members import is_pool_host, port_of, watch_members
from services.agent.probe import probe
from services.agent.reconcile import ENDED
from services.agent.volumes import Volumes
from shared.model.assignment import InstanceState
from shared.model.run import Healthcheck
from shared.runtime import tasks

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all replicas of an agent share. `changed` is called after each change of an entry; `host` is probed;
    `now` tells when a state began.
    """

    driver: Driver
    journal: Journal
    volumes: Volumes
    host: str
    changed: Callable[[], None]
    now: Callable[[], datetime]


class Replica:
    """`entry` is what is known of it now."""

    def __init__(self, entry: Entry, around: Surroundings) -> None:
        self.entry = entry
        self._around = around
        self._launch = Launch(entry.assignment, entry.workload, entry.run)
        self._handle: Handle | None = None
        self._begun = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        return self.entry.state in ENDED

    @property
    def pid(self) -> int | None:
        """The leader of its process group, while it runs."""
        return self._handle.pid if self._handle is not None and not self.ended else None

    def start(self) -> None:
        """Start it, in the background."""
        self._life = asyncio.create_task(self._guard(self._start()), name=f"replica {self.entry.assignment}")

    def adopt(self) -> None:
        """Take it over from an earlier agent, in the background. What had ended stays ended."""
        if self.ended:
            self._begun.set()
            return
        self._around.driver.reserve(self.entry.ports)
        with contextlib.suppress(DriverError):  # it runs with its volumes, whatever is thought of that now
            self._find_volumes()
            self._around.volumes.hold(self.entry.assignment, self._launch.volumes)
        self._life = asyncio.create_task(self._guard(self._adopt()), name=f"replica {self.entry.assignment}")

    def stop(self) -> None:
        """Stop it, in the background; a second call changes nothing."""
        if self._stopping is None and not self.ended:
            self._stopping = asyncio.create_task(self._guard(self._stop()), name=f"stop {self.entry.assignment}")

    async def stopped(self) -> None:
        """Wait for a stop that is under way."""
        if self._stopping is not None:
            await asyncio.wait([self._stopping])

    async def leave(self) -> None:
        """Stop watching; its process goes on. A start that is under way is awaited, so that its pid is on record."""
        if self._life is not None:
            await self._begun.wait()
        under_way = [task for task in (self._life, self._stopping) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _guard(self, work: Any) -> None:
        """A defect of one replica must not end the others."""
        try:
            await work
        except Exception as error:
            log.exception("a replica is given up", assignment=self.entry.assignment)
            if not self.ended:
                self._end("failed", Exit(None, f"the agent failed: {type(error).__name__}: {error}"))
        finally:
            self._begun.set()

    async def _start(self) -> None:
        driver, journal = self._around.driver, self._around.journal
        try:
            self._find_volumes()
            self.entry = self.entry.model_copy(update={"ports": dict(driver.ports(self._launch))})
            journal.write(self.entry)
            self._around.changed()
            await self._take_volumes()
            self._handle = await driver.start(self._launch, self.entry.ports)
        except (DriverError, OSError) as error:
            self._end("failed", Exit(None, str(error)))
            return
        await self._run()

    def _find_volumes(self) -> None:
        self._launch = replace(self._launch, volumes=self._around.volumes.paths(self.entry.workload, self.entry.run))

    async def _take_volumes(self) -> None:
        """Nothing is started before the fence is on the disk."""
        volumes, name, paths = self._around.volumes, self.entry.assignment, self._launch.volumes
        if paths:
            volumes.hold(name, paths)
            await asyncio.to_thread(volumes.admit, name, paths, self.entry.volume_epoch)

    async def _adopt(self) -> None:
        entry = self.entry
        recorded = None
        if entry.pid is not None and entry.process_started_at is not None:
            recorded = Handle(entry.pid, entry.process_started_at)
        self._handle = await self._around.driver.find(self._launch, recorded)
        if self._handle is None:
            why = "it was not started" if recorded is None else "it ended; the exit code is unknown"
            self._end("failed", Exit(None, f"while no agent watched, {why}"))
            return
        log.info("adopted", assignment=entry.assignment, pid=self._handle.pid, state=entry.state)
        await self._run()

    async def _run(self) -> None:
        """From a process that runs to its end."""
        handle, check = self._handle, self.entry.run.healthcheck
        assert handle is not None
        state = self.entry.state
        if state == "starting":
            state = "running" if check else "healthy"
        self._become(state, pid=handle.pid, process_started_at=handle.started_at)
        self._begun.set()
        watching = [asyncio.create_task(self._probe(check, handle))] if check else []
        if is_pool_host(self.entry.run):
            watching.append(asyncio.create_task(self._watch_members()))
        try:
            ended = await self._around.driver.wait(handle)
        finally:
            await tasks.end(*watching)
        self._end("failed", ended)

    async def _watch_members(self) -> None:
        port = port_of(self.entry.run, self.entry.ports)
        if port is not None:
            await watch_members(self._around.host, port, self._tell_members)

    def _tell_members(self, members: dict[str, str]) -> None:
        self._become(self.entry.state, members=members)

    async def _probe(self, check: Healthcheck, handle: Handle) -> None:
        around, state = self._around, self.entry.state
        assert state == "running" or state == "healthy" or state == "unhealthy"  # noqa: PLR1714 - narrows the type
        health = Health(state, passed_once=self.entry.healthy_since is not None)
        started = time.monotonic() - max(0.0, time.time() - handle.started_at)
        while True:
            await asyncio.sleep(delay_seconds(health, check))
            result = await probe(around.driver, self._launch, check, around.host, self.entry.ports)
            elapsed = time.monotonic() - started
            health = after_probe(health, check, passed=result.passed, elapsed_seconds=elapsed)
            if health.state != self.entry.state:
                self._become(health.state, message=result.reason)

    async def _stop(self) -> None:
        await self._begun.wait()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        if self._handle is not None and not self.ended:
            self._end("stopped", await self._around.driver.stop(self._handle, self.entry.run.stop_grace_seconds))

    def _end(self, state: InstanceState, how: Exit) -> None:
        self._around.driver.release(self.entry.ports)
        self._around.volumes.release(self.entry.assignment)
        self._become(state, exit_code=how.code, message=how.message, members={})
        log.info("ended", assignment=self.entry.assignment, state=state, code=how.code, message=how.message)

    def _become(self, state: InstanceState, **changes: Any) -> None:
        now = self._around.now()
        if state != self.entry.state:
            changes |= {"state": state, "since": now}
            if state == "healthy":
                changes["healthy_since"] = now
        entry = self.entry.model_copy(update={"message": "", **changes} if "state" in changes else changes)
        if entry == self.entry:
            return
        self.entry = entry
        try:
            self._around.journal.write(entry)
        except OSError as error:
            # What runs goes on; the next agent may know less of it.
            log.error("the journal cannot be written", assignment=entry.assignment, reason=str(error))
        self._around.changed()
