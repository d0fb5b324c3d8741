"""A simulated fleet on the real bus: nodes that register, send heartbeats and answer what they are assigned."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import orjson

from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.node import Capacity, Node
from shared.runtime import records, tasks
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.service import Version
from shared.subjects import Key


class Fleet:
    """`answers` says whether a replica may become healthy yet; what may not is held until `release`."""

    def __init__(
        self, bus: Bus, nodes: int, answers: Callable[[Key, Assignment], bool] = lambda key, record: True
    ) -> None:
        self.bus = bus
        self.names = [f"n{number:03d}" for number in range(nodes)]
        self.answers: Callable[[Key, Assignment], bool] = lambda key, record: True
        self.held: list[Version] = []
        self.assignments: dict[Key, Assignment] = {}
        self.log: list[Version] = []
        self._follower = Follower(bus, [subjects.ASSIGNMENT.subject_filter])
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for name in self.names:
            await records.put(
                self.bus, subjects.NODE, (name,), Node(capacity=Capacity(cpu_millis=16_000, memory_mb=65_536))
            )
        await self._follower.start()
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._work())]

    async def stop(self) -> None:
        await tasks.end(*self._tasks)
        await self._follower.stop()

    async def release(self) -> None:
        """Answer what was held, and everything from now on."""
        self.answers = lambda key, record: True
        held, self.held = self.held, []
        for version in held:
            await self._answer(version)

    async def _beat(self) -> None:
        body = orjson.dumps({"interval_seconds": 2})
        while True:
            for name in self.names:
                with contextlib.suppress(Exception):
                    await self.bus.nc.publish(subjects.live_node(name), body)
            await asyncio.sleep(2)

    async def _work(self) -> None:
        while True:
            batch = await self._follower.next(None)
            if isinstance(batch, Restarted):
                continue
            for message in batch:
                await self._answer(records.version_of(message))

    async def _answer(self, version: Version) -> None:
        record = version.record
        if version not in self.log:
            self.log.append(version)
        if not isinstance(record, Assignment):
            self.assignments.pop(version.key, None)
            await records.put(self.bus, subjects.INSTANCE, version.key, None)
            return
        self.assignments[version.key] = record
        if record.desired == "run" and not self.answers(version.key, record):
            self.held.append(version)
            return
        state = "stopped" if record.desired == "stop" else "healthy"
        instance = Instance.model_validate(
            {
                "assignment_sequence": version.sequence,
                "state": state,
                "ports": {"http": 8080},
                "since": datetime.now(UTC),
                "healthy_since": datetime.now(UTC) if state == "healthy" else None,
            }
        )
        await records.put(self.bus, subjects.INSTANCE, version.key, instance)

    def running(self, release: str) -> list[Key]:
        return [
            key for key, record in self.assignments.items() if record.release == release and record.desired == "run"
        ]
