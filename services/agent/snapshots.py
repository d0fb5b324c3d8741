"""Snapshots of this node's volumes: made when an order asks, deleted when a prune names them.

| order      | last report         | what is done                                                             |
|------------|---------------------|--------------------------------------------------------------------------|
| running    | none, or running    | make it, again where an earlier agent was at it; failed past the deadline |
| running    | complete, failed    | nothing: it has been answered                                            |
| done       | running             | what still runs is ended; reported as failed                             |
| deleted    | any                 | the report goes                                                          |
| in a prune | any                 | the file goes, then the report                                           |

A snapshot is made whole or not at all, so an order that was under way when an agent ended is simply made again. What is
in no order and no prune is left alone: an empty log deletes no backup.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from services.agent import reads, snapshot_command
from services.agent.clock import ServerClock
from services.agent.config import AgentConfig
from services.agent.reports import RETRY_SECONDS, Reports
from services.agent.volumes import Volumes
from shared import subjects
from shared.errors import InvalidRecord, InvalidSubject, SteerError
from shared.model.snapshot import SnapshotOrder, SnapshotPrune, SnapshotReport
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.records import version_of

log = structlog.get_logger(__name__)

AT_ONCE = 2
"""So many snapshots are made at a time; they share the disks with the replicas."""


class Orders:
    """Orders and prunes as the log has them. An order is known by `<project>/<app>/<environment>/<volume>/<id>`."""

    def __init__(self) -> None:
        self.readable: dict[str, SnapshotOrder] = {}
        self.deleted: set[str] = set()
        self._prunes: dict[str, tuple[str, ...]] = {}

    def take(self, message: Message) -> None:
        """Fold one message. Never raises; what cannot be read changes nothing."""
        try:
            version = version_of(message)
        except (InvalidRecord, InvalidSubject) as error:
            log.error("cannot be read, and is left alone", subject=message.subject, reason=str(error))
            return
        name = "/".join(version.key[1:])
        match version.record:
            case SnapshotPrune(ids=ids):
                self._prunes[name] = ids
            case SnapshotOrder() as order:
                self.readable[name] = order
                self.deleted.discard(name)
            case _ if version.kind is subjects.SNAPSHOT_PRUNE:
                self._prunes.pop(name, None)
            case _:
                self.readable.pop(name, None)
                self.deleted.add(name)

    @property
    def pruned(self) -> set[str]:
        return {f"{volume}/{id}" for volume, ids in self._prunes.items() for id in ids}

    @property
    def names(self) -> set[str]:
        return {*self.readable, *self.deleted, *self.pruned}


class Snapshots:
    """`run` until it is cancelled; what is being made then is given up, and made by the next agent."""

    def __init__(
        self, config: AgentConfig, volumes: Volumes, clock: ServerClock, steady_now: Callable[[], datetime]
    ) -> None:
        self._config = config
        self._volumes = volumes
        self._directory = config.data_dir / "snapshots"
        self._clock = clock
        self._now = steady_now
        self._reports = Reports(config.node, subjects.SNAPSHOT_REPORT, SnapshotReport)
        self._orders = Orders()
        self._learned: set[str] = set()
        self._making: dict[str, asyncio.Task[None]] = {}
        self._given_up: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def run(self, bus: Bus) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reports.run(bus), name="report snapshots")
                group.create_task(self._follow(bus), name="follow snapshot orders")
        finally:
            for name in list(self._making):
                self._give_up(name)
            await asyncio.gather(*self._given_up, return_exceptions=True)

    async def _follow(self, bus: Bus) -> None:
        name = self._config.node
        follower = Follower(bus, reads.snapshots(name), name=f"agent-{name}-snapshots")
        await follower.start()
        try:
            while True:
                batch = await follower.next(None)
                if isinstance(batch, Restarted):
                    self._orders, self._learned = Orders(), set()
                    continue
                for message in batch:
                    self._orders.take(message)
                    self._clock.hear(message.at)
                if follower.caught_up:
                    await self._learn(bus)
                    self._look()
        finally:
            await follower.stop()

    async def _learn(self, bus: Bus) -> None:
        """What has been reported about the orders that are new here."""
        delay = RETRY_SECONDS[0]
        while unknown := self._orders.names - self._learned:
            try:
                await self._reports.learn(bus, unknown - self._making.keys())
                self._learned |= unknown
            except SteerError as error:
                log.warning("cannot read the reports of snapshots; trying on", reason=str(error))
                await asyncio.sleep(delay * random.uniform(0.75, 1.25))
                delay = min(delay * 2, RETRY_SECONDS[1])

    def _look(self) -> None:
        pruned = self._orders.pruned
        for name in pruned:
            self._prune(name)
        for name in sorted(self._orders.deleted):
            self._forget(name)
        for name, order in sorted(self._orders.readable.items()):
            if name not in pruned:
                self._about(name, order)

    def _about(self, name: str, order: SnapshotOrder) -> None:
        report = self._reports.latest(name)
        open_ = report is None or report.state == "running"
        if order.state == "running" and open_ and name not in self._making:
            task = asyncio.create_task(self._make(name, order), name=f"snapshot {name}")
            self._making[name] = task
            task.add_done_callback(lambda task: self._made(name, task))
        elif order.state != "running" and report is not None and report.state == "running":
            self._give_up(name)
            self._report(name, state="failed", error=f"given up: the order is {order.state}")

    async def _make(self, name: str, order: SnapshotOrder) -> None:
        async with self._turn:
            left = order.deadline - self._clock.now()
            if left <= timedelta():
                self._report(name, state="failed", error="its deadline had passed before it could begin")
                return
            self._report(name, state="running")
            workload, volume, _ = name.rsplit("/", 2)
            target = self._target(name)
            try:
                async with asyncio.timeout(left.total_seconds()):
                    path = self._volumes.path(workload, volume)
                    size = await snapshot_command.make(self._config.snapshot_command, path, target)
            except TimeoutError:
                self._report(name, state="failed", error="not done by its deadline")
            except (SteerError, OSError) as error:
                self._report(name, state="failed", error=str(error))
            except Exception as error:  # a defect here must not end the replicas
                log.exception("a snapshot is given up", snapshot=name)
                self._report(name, state="failed", error=f"the agent failed: {type(error).__name__}: {error}")
            else:
                self._report(name, state="complete", size_bytes=size, location=str(target))
            report = self._reports.latest(name)
            assert report is not None
            log.info("snapshot", name=name, state=report.state, size_bytes=report.size_bytes, error=report.error)

    def _made(self, name: str, task: asyncio.Task[None]) -> None:
        if self._making.get(name) is task:
            del self._making[name]

    def _report(self, name: str, **fields: object) -> None:
        self._reports.put(name, SnapshotReport.model_validate({"at": self._now(), **fields}))

    def _prune(self, name: str) -> None:
        self._give_up(name)
        try:
            self._target(name).unlink(missing_ok=True)
        except OSError as error:
            log.error("a snapshot cannot be deleted; its report stays", snapshot=name, reason=str(error))
            return
        self._reports.put(name, None)

    def _forget(self, name: str) -> None:
        self._orders.deleted.discard(name)
        self._give_up(name)
        if self._reports.latest(name) is not None and self._target(name).exists():
            log.warning("a snapshot without an order is left where it is", file=str(self._target(name)))
        self._reports.put(name, None)

    def _give_up(self, name: str) -> None:
        if (task := self._making.pop(name, None)) is not None:
            self._given_up.add(task)  # until its command has ended
            task.add_done_callback(self._given_up.discard)
            task.cancel()

    def _target(self, name: str) -> Path:
        return self._directory / f"{name}.snapshot"
