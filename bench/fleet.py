"""`python -m bench.fleet`: thousands of nodes in one process, which send heartbeats and answer assignments at once.

The nodes are those that the log names. Each sends its heartbeat at the interval of `steer.fleet`, spread evenly, with
what each of its replicas uses. A replica is reported healthy when its assignment comes, stopped when told to stop, and
its instance is deleted with its assignment, as an agent does it. What is in the log at the start is answered too, where
it was not. With one argument, a file, the process writes it when all of that has been read.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import uvloop

from bench.raw import BatchWriter, Raw, raw
from shared import codec, subjects
from shared.model.assignment import Assignment, Instance
from shared.model.live import InstanceUsage, NodeSample
from shared.model.node import Fleet
from shared.runtime import records
from shared.runtime.bus import Bus, connect
from shared.runtime.encode import DELETE, OPERATION
from shared.runtime.follower import Follower, Restarted
from shared.runtime.settings import Settings
from shared.service import Version
from shared.subjects import Key

FOLLOWED = (subjects.NODE, subjects.ASSIGNMENT, subjects.FLEET)
BEAT_SECONDS = 0.02
USAGE = InstanceUsage(cpu_percent=1.5, memory_mb=64)
PORT = 20_000


class SimulatedFleet:
    """What the nodes know: their assignments, what they have said of each, and how often they send a heartbeat."""

    def __init__(self) -> None:
        self.interval_seconds = float(Fleet().heartbeat_interval_seconds)
        self.nodes: dict[str, dict[str, None]] = {}
        """The replicas that each node runs."""
        self._wanted: dict[Key, tuple[int, Assignment]] = {}
        self._said: dict[Key, str] = {}
        self._bodies: dict[str, bytes] = {}
        self._touched: dict[Key, None] = {}

    def take(self, version: Version) -> None:
        """One record of the log."""
        key, record = version.key, version.record
        if version.kind is subjects.NODE:
            self.nodes.setdefault(key[0], {})
        elif isinstance(record, Fleet):
            self.interval_seconds = float(record.heartbeat_interval_seconds)
            self._bodies.clear()
        elif version.kind is subjects.ASSIGNMENT:
            self._take_assignment(version)
        elif isinstance(record, Instance):
            self._said[key] = record.state
            if record.state == "healthy":
                self._runs(key)

    def _take_assignment(self, version: Version) -> None:
        key, record = version.key, version.record
        self._touched[key] = None
        if isinstance(record, Assignment):
            self._wanted[key] = version.sequence, record
        else:
            self._wanted.pop(key, None)

    def answers(self, now: datetime) -> Iterator[Raw]:
        """What the nodes have to say about the assignments that came."""
        for key in self._touched:
            sequence, assignment = self._wanted.get(key, (0, None))
            subject = subjects.INSTANCE.subject(*key)
            if assignment is None:
                self._runs(key, runs=False)
                if self._said.pop(key, None) is not None:
                    yield raw(subject, b"", {OPERATION: DELETE})
                continue
            state = "stopped" if assignment.desired == "stop" else "healthy"
            self._runs(key, runs=state == "healthy")
            if self._said.get(key) != state:
                self._said[key] = state
                yield raw(subject, codec.encode(_instance(sequence, state, now)))
        self._touched.clear()

    def _runs(self, key: Key, *, runs: bool = True) -> None:
        replicas = self.nodes.setdefault(key[0], {})
        if runs:
            replicas[key[1]] = None
        else:
            replicas.pop(key[1], None)
        self._bodies.pop(key[0], None)

    def heartbeat(self, node: str) -> bytes:
        body = self._bodies.get(node)
        if body is None:
            usage = dict.fromkeys(self.nodes[node], USAGE)
            sample = NodeSample(interval_seconds=self.interval_seconds, memory_used_mb=4096, instances=usage)
            body = self._bodies[node] = codec.encode(sample)
        return body


def _instance(sequence: int, state: str, now: datetime) -> Instance:
    healthy = state == "healthy"
    return Instance.model_validate(
        {
            "assignment_sequence": sequence,
            "state": state,
            "ports": {"http": PORT} if healthy else {},
            "since": now,
            "healthy_since": now if healthy else None,
        }
    )


async def _answer(bus: Bus, fleet: SimulatedFleet, arguments: Sequence[str]) -> None:
    """Follow the log and answer, for ever. Of instances only those from before are read: the rest is its own."""
    for version in await records.load(bus, [subjects.INSTANCE.subject_filter]):
        fleet.take(version)
    writer = BatchWriter(bus)
    follower = Follower(bus, [kind.subject_filter for kind in FOLLOWED])
    await follower.start()
    ready = [Path(argument) for argument in arguments]
    while True:
        batch = await follower.next(None)
        assert not isinstance(batch, Restarted), "the fleet had to load the log anew"
        for message in batch:
            fleet.take(records.version_of(message))
        if not follower.caught_up:
            continue
        if reports := list(fleet.answers(datetime.now(UTC))):
            await writer.write(reports)
        while ready:
            ready.pop().touch()


async def _beat(bus: Bus, fleet: SimulatedFleet) -> None:
    """Every node in turn, evenly over the interval, for ever; what could not be sent in time is left out."""
    last, owed, turn = monotonic(), 0.0, 0
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        now = monotonic()
        names = list(fleet.nodes)
        owed += min(now - last, 1.0) / fleet.interval_seconds * len(names)
        last = now
        for _ in range(int(owed)):
            name = names[turn % len(names)]
            await bus.nc.publish(subjects.live_node(name), fleet.heartbeat(name))
            turn += 1
        owed -= int(owed)


async def main(arguments: Sequence[str]) -> None:
    bus = await connect(Settings.from_environment(), "fleet", patience=10)
    fleet = SimulatedFleet()
    await asyncio.gather(_answer(bus, fleet, arguments), _beat(bus, fleet))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1:]))
