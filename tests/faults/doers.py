"""Those who do what was decided: agents of eight nodes, and build workers. They answer the log, and keep their word.

Level-triggered, as the real ones: what is last on a subject is answered, however often it comes, and whatever the bus
does meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import UTC, datetime
from random import Random
from typing import Any

from shared import codec, subjects
from shared.errors import Unavailable
from shared.model.assignment import Assignment, Instance
from shared.model.build_worker import BuildOrder, BuildReport, BuildWorker, WorkerConditions, WorkerScale
from shared.model.live import BuildSample, NodeSample
from shared.model.node import Capacity, Node
from shared.runtime import records, tasks
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.runtime.messages import send
from shared.service import Version
from shared.subjects import Key
from tests.faults.ledger import Ledger

NODES = tuple(f"n{number}" for number in range(8))
POOL = "default"
BEAT_SECONDS = 1.0
BUILD_SECONDS = 0.4
READY = WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True)


class Doer:
    """What both have: a follower of some subjects, `current` by subject, and a round over what has changed."""

    filters: tuple[str, ...] = ()

    def __init__(self, bus: Bus, ledger: Ledger, random: Random) -> None:
        self.bus, self.ledger, self.random = bus, ledger, random
        self.current: dict[tuple[str, Key], Version] = {}
        self.answering = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.begin()
        self._tasks = [asyncio.create_task(each) for each in (self._follow(), self._keep_beating())]

    async def stop(self) -> None:
        await tasks.end(*self._tasks)

    async def begin(self) -> None:
        """Before anything is followed."""

    async def changed(self, version: Version) -> None:
        raise NotImplementedError

    async def beat(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Raise what has ended one of its tasks."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def _follow(self) -> None:
        follower = Follower(self.bus, list(self.filters))
        await follower.start()
        try:
            while True:
                batch = await follower.next(None)
                if isinstance(batch, Restarted):
                    continue  # the last version of everything comes again
                versions = {message.subject: records.version_of(message) for message in batch}
                self.current |= {(each.kind.name, each.key): each for each in versions.values()}
                async with self.answering:
                    await asyncio.gather(*(self.changed(each) for each in versions.values()))
        finally:
            await follower.stop()

    async def _keep_beating(self) -> None:
        while True:
            await _unless_away(self.beat())
            await asyncio.sleep(BEAT_SECONDS)


class Agents(Doer):
    """Eight nodes. Replicas become healthy at once; `fail` ends one of them."""

    filters = (subjects.ASSIGNMENT.subject_filter,)

    def __init__(self, bus: Bus, ledger: Ledger, random: Random) -> None:
        super().__init__(bus, ledger, random)
        self._failed: set[Key] = set()

    async def begin(self) -> None:
        node = Node(capacity=Capacity(cpu_millis=16_000, memory_mb=65_536), labels={"region": "here"})
        for name in NODES:
            await self.ledger.insist(self.bus, subjects.NODE, (name,), node)

    async def changed(self, version: Version) -> None:
        record = version.record
        if not isinstance(record, Assignment):
            self._failed.discard(version.key)
            await self.ledger.insist(self.bus, subjects.INSTANCE, version.key, None)
        elif record.desired == "stop":
            await self._answer(version, "stopped")
        else:
            await self._answer(version, "failed" if version.key in self._failed else "healthy")

    async def _answer(self, version: Version, state: str) -> None:
        now = datetime.now(UTC)
        assert isinstance(version.record, Assignment)
        ports = {port.name: 20_000 + int(version.sequence) % 40_000 for port in version.record.run.ports}
        instance = Instance.model_validate(
            {
                "assignment_sequence": version.sequence,
                "state": state,
                "ports": ports,
                "exit_code": 1 if state == "failed" else None,
                "since": now,
                "healthy_since": now if state == "healthy" else None,
            }
        )
        await self.ledger.insist(self.bus, subjects.INSTANCE, version.key, instance)

    async def fail(self) -> None:
        """One running replica exits: an endpoint is gone, and another one takes its place."""
        async with self.answering:
            running = [each for each in self.current.values() if _runs(each) and each.key not in self._failed]
            if running:
                version = self.random.choice(running)
                self._failed.add(version.key)
                await self._answer(version, "failed")

    async def beat(self) -> None:
        body = codec.encode(NodeSample(interval_seconds=BEAT_SECONDS))
        for name in NODES:
            await send(self.bus, subjects.live_node(name), body)


class Workers(Doer):
    """Build workers as the scale wants them: each takes its order, and reports its build done a moment later."""

    filters = (
        subjects.WORKER_SCALE.subject_filter,
        subjects.BUILD_ORDER.subject_filter,
        subjects.BUILD_REPORT.subject_filter,
    )

    def __init__(self, bus: Bus, ledger: Ledger, random: Random) -> None:
        super().__init__(bus, ledger, random)
        self._born: dict[str, datetime] = {}
        self._building: dict[str, asyncio.Task[None]] = {}
        self._tokens: dict[str, str] = {}

    async def changed(self, version: Version) -> None:
        match version.record:
            case WorkerScale() as scale:
                await self._scale(scale)
            case BuildOrder() as order:
                await self._take(version.key[1], order)
            case None if version.kind is subjects.BUILD_ORDER:
                await self._leave(version.key[1])
            case _:
                pass

    async def _scale(self, scale: WorkerScale) -> None:
        wanted = {f"w-{ordinal}": ordinal for ordinal in range(scale.replicas)}
        for name in [name for name in self._born if name not in wanted or name in scale.replace]:
            await self._leave(name)
            del self._born[name]
            await self.ledger.insist(self.bus, subjects.BUILD_WORKER, (POOL, name), None)
        for name, ordinal in wanted.items():
            if name not in self._born:
                self._born[name] = datetime.now(UTC)
                record = BuildWorker(ordinal=ordinal, phase="running", conditions=READY, created_at=self._born[name])
                await self.ledger.insist(self.bus, subjects.BUILD_WORKER, (POOL, name), record)

    async def _take(self, name: str, order: BuildOrder) -> None:
        if order.worker_created_at != self._born.get(name):
            return
        if order.cancel:
            await self._leave(name)
            await self._report(name, order, "canceled")
        elif self._tokens.get(name) != order.token:
            await self._leave(name)
            self._tokens[name] = order.token
            self._building[name] = asyncio.create_task(self._build(name, order))

    async def _build(self, name: str, order: BuildOrder) -> None:
        await self._report(name, order, "running")
        await asyncio.sleep(self.random.uniform(0, 2 * BUILD_SECONDS))
        await self._report(name, order, "succeeded" if self.random.random() < 0.9 else "failed")

    async def _report(self, name: str, order: BuildOrder, state: Any) -> None:
        report = BuildReport(
            build=order.build,
            attempt=order.attempt,
            token=order.token,
            state=state,
            image_digest="sha256:1" if state == "succeeded" else "",
        )
        key = (POOL, name, order.build.rpartition("/")[2])
        await self.ledger.insist(self.bus, subjects.BUILD_REPORT, key, report)

    async def _leave(self, name: str) -> None:
        """What was built there is over: nothing is reported any more, and the reports are taken back."""
        task = self._building.pop(name, None)
        await tasks.end(task)
        self._tokens.pop(name, None)
        reports = [(kind, key) for kind, key in self.current if kind == subjects.BUILD_REPORT.name and key[1] == name]
        for at in reports:
            if self.current[at].record is not None:
                await self.ledger.insist(self.bus, subjects.BUILD_REPORT, at[1], None)

    async def beat(self) -> None:
        for name in self._born:
            body = codec.encode(BuildSample(token=self._tokens.get(name, "")))
            await send(self.bus, subjects.live_build(POOL, name), body)


def _runs(version: Version) -> bool:
    return isinstance(version.record, Assignment) and version.record.desired == "run"


async def _unless_away(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(Unavailable):
        await work
