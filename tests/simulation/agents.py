"""Simulated nodes: a machine with replicas on it, and the agent that looks after them.

What is to be done about an assignment is `services.agent.reconcile`'s, used here as it is. The replicas are the
machine's: they run on while the agent is down or cut off, and die with the machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import orjson

from services.agent.reconcile import ENDED, Action, Wanted, World, reconcile
from shared.errors import InvalidRecord
from shared.model.assignment import Assignment, Instance, InstanceState
from shared.model.live import InstanceUsage, NodeSample
from shared.model.node import Fleet, Node
from shared.model.pool import MEMBERS_VARIABLE
from shared.service import Sample
from shared.subjects import ASSIGNMENT, FLEET, INSTANCE, NODE

from .faults import Rates
from .node_snapshots import NodeSnapshots
from .process import Process
from .surroundings import Surroundings
from .wire import Stored, put

BAD_IMAGE = "exec:bad"
"""Exits as soon as it is started."""
SICK_IMAGE = "exec:sick"
"""Runs, and never becomes healthy."""


@dataclass(slots=True)
class Replica:
    assignment: Assignment
    sequence: int
    state: InstanceState
    since: datetime
    ports: dict[str, int] = field(default_factory=dict)
    exit_code: int | None = None
    healthy_since: datetime | None = None
    members: dict[str, str] = field(default_factory=dict)
    """Of a pool host: what it says of each function."""

    @property
    def alive(self) -> bool:
        return self.state not in ENDED


class Agent(Process):
    """One node. `telemetry` takes its heartbeats; `rates` says how often replicas fail."""

    def __init__(
        self, name: str, node: Node, around: Surroundings, rates: Rates, telemetry: Callable[[Sample], None]
    ) -> None:
        super().__init__(name, around.timeline)
        self._log = around.log
        self._random = around.random
        self._rates = rates
        self._telemetry = telemetry
        self._node = node
        self._boot = 0
        self._next_port = 20_000
        self.machine_up = True
        self.cut_off = False
        self.replicas: dict[str, Replica] = {}
        self.on_start: Callable[[Assignment], None] = lambda assignment: None
        self.clock_offset = timedelta(seconds=self._random.uniform(-30, 30))
        self.usage: Callable[[Assignment], float] = lambda assignment: 0.0
        """How many percent of its share a replica uses."""
        self.snapshots = NodeSnapshots(self, around.log, around.random, rates)

    # -- the machine --------------------------------------------------------------------------------------------------

    def lose_machine(self) -> None:
        """Power off: the agent and all replicas are gone."""
        self.crash()
        self._boot += 1
        self.machine_up = False
        self.replicas.clear()

    def start(self) -> None:
        self.machine_up = True
        super().start()

    def wall(self) -> datetime:
        return self.timeline.now + self.clock_offset

    def _soon(self, seconds: float, name: str, action: Callable[[Replica], None]) -> None:
        """Happens to a replica, whatever becomes of the agent, as long as the machine and the replica live."""
        boot, replica = self._boot, self.replicas[name]

        def happens() -> None:
            if self._boot == boot and replica.alive:
                action(replica)

        self.timeline.after(seconds, happens)

    def _run(self, name: str, assignment: Assignment, sequence: int) -> None:
        self.replicas[name] = Replica(assignment, sequence, "starting", self.wall())
        self.on_start(assignment)
        self._look_soon()
        image = assignment.run.image
        fails = image == BAD_IMAGE or self._random.random() < self._rates.failed_start
        if fails:
            self._soon(self._random.uniform(0.05, 2), name, partial(self._end, name, "failed", 1))
        else:
            self._soon(self._random.uniform(0.02, 1.5), name, partial(self._running, name))

    def _running(self, name: str, replica: Replica) -> None:
        for port in replica.assignment.run.ports:
            self._next_port += 1
            replica.ports[port.name] = self._next_port
        self._become(name, replica, "running")
        for member in orjson.loads(replica.assignment.run.env.get(MEMBERS_VARIABLE, "[]")):
            replica.members[member["name"]] = "loading"
            self._soon(self._random.uniform(0.05, 5), name, partial(self._loaded_member, member["name"]))
        if replica.assignment.run.image != SICK_IMAGE:
            self._soon(self._random.uniform(0.05, 4), name, partial(self._healthy, name))

    def _loaded_member(self, member: str, replica: Replica) -> None:
        """Now and then one cannot be loaded: its pool is up without it."""
        failed = self._random.random() < self._rates.failed_start
        replica.members[member] = "failed" if failed else "ready"
        self._look_soon()

    def _healthy(self, name: str, replica: Replica) -> None:
        if "loading" in replica.members.values():  # a pool host is up once nothing is loading
            self._soon(0.2, name, partial(self._healthy, name))
            return
        replica.healthy_since = self.wall()
        self._become(name, replica, "healthy")
        if self._random.random() < self._rates.exit:
            self._soon(self._random.expovariate(1 / 40), name, partial(self._trouble, name))

    def _trouble(self, name: str, replica: Replica) -> None:
        """Exits, or is unhealthy for a while: some recover by themselves."""
        if not self._rates.exit:
            return
        if self._random.random() < 0.6:
            self._end(name, "failed", 137, replica)
        else:
            self._become(name, replica, "unhealthy")
            if self._random.random() < 0.7:
                self._soon(self._random.uniform(1, 120), name, partial(self._healthy, name))

    def _become(self, name: str, replica: Replica, state: InstanceState) -> None:
        replica.state, replica.since = state, self.wall()
        self._look_soon()

    def _end(self, name: str, state: InstanceState, code: int, replica: Replica) -> None:
        replica.exit_code = code
        replica.ports = {}
        replica.members = {}
        self._become(name, replica, state)

    # -- the agent ----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        super().crash()
        self.snapshots.forget()

    def started(self) -> None:
        self._wanted: dict[str, tuple[Assignment, int]] = {}
        self._deleted: set[str] = set()
        self._unreadable: set[str] = set()
        self._reported: dict[str, Instance] = {}
        self._held: set[str] = set()
        self._stopping: set[str] = set()
        self._outbox: set[str] = set()
        self._inbox: list[Stored] = []
        self._looking = self._reading = self._loaded = False
        self.later(self._random.uniform(0.01, 0.3), self._load)
        self.later(self._random.uniform(0, 2), self._beat)
        self.snapshots.look_soon()

    def _load(self) -> None:
        if self.cut_off:
            self.later(1, self._load)
            return
        records = self._log.current(NODE)
        for sequence in self._log.last_per_subject([ASSIGNMENT]):
            stored = self._log.get(sequence)
            if stored is not None and stored.key[0] == self.name:
                self._take(stored)
        for key, instance in self._log.current(INSTANCE).items():
            if key[0] == self.name and isinstance(instance, Instance):
                self._reported[key[1]] = instance
                if key[1] not in self._wanted:
                    self._deleted.add(key[1])
        if (self.name,) not in records:
            self._held = set(self.replicas) - set(self._wanted)
        self._loaded = True
        if records.get((self.name,)) != self._node:
            self._log.publish(put(NODE, (self.name,), self._node))
        self._look_soon()

    def notify(self, stored: Stored) -> None:
        """An assignment of this node was stored; it is read a little later."""
        if self.up and self._loaded:
            self._inbox.append(stored)
            if not self._reading:
                self._reading = True
                self.later(self._random.uniform(0.001, 0.08), self._read)

    def _read(self) -> None:
        if self.cut_off:
            self.later(1, self._read)
            return
        self._reading = False
        for stored in self._inbox:
            self._take(stored)
        self._inbox.clear()
        self._look_soon()

    def _take(self, stored: Stored) -> None:
        name = stored.key[1]
        try:
            record = self._log.read(stored).record
        except InvalidRecord:
            self._unreadable.add(name)
            return
        self._unreadable.discard(name)
        if isinstance(record, Assignment):
            self._wanted[name] = (record, stored.sequence)
            self._held.discard(name)
            self._deleted.discard(name)
        else:
            self._wanted.pop(name, None)
            self._deleted.add(name)

    def _look_soon(self) -> None:
        if self.up and not self._looking and self._loaded:
            self._looking = True
            self.later(0.001, self._look)

    def _look(self) -> None:
        self._looking = False
        world = World(
            wanted={name: Wanted(a.desired, a.not_before) for name, (a, _) in self._wanted.items()},
            deleted=frozenset(self._deleted),
            unreadable=frozenset(self._unreadable),
            replicas={name: replica.state for name, replica in self.replicas.items()},
            reported={name: instance.state for name, instance in self._reported.items()},
            held=frozenset(self._held & set(self.replicas)),
        )
        outcome = reconcile(world, self.wall())
        for action in outcome.actions:
            self._do(action)
        if outcome.wake_at is not None:
            self.later((outcome.wake_at - self.wall()).total_seconds() + 0.001, self._look_soon)

    def _do(self, action: Action) -> None:
        name = action.assignment
        match action.kind:
            case "start":
                assignment, sequence = self._wanted[name]
                self._run(name, assignment, sequence)
            case "stop" if name not in self._stopping:
                self._stopping.add(name)
                self._soon(self._random.uniform(0.05, 3), name, partial(self._end, name, "stopped", 0))
            case "answer":
                self._answer(name, action.state, action.message)
            case "forget":
                self.replicas.pop(name, None)
                self._stopping.discard(name)
                self._deleted.discard(name)
                if self._reported.pop(name, None) is not None:
                    self._send_soon(name)
            case _:
                pass

    def _answer(self, name: str, state: InstanceState | None, message: str) -> None:
        """On change only: what the replica is, or what the agent says without one."""
        replica, before = self.replicas.get(name), self._reported.get(name)
        sequence = self._wanted[name][1]
        if replica is not None:
            instance = Instance(
                assignment_sequence=sequence,
                state=replica.state,
                ports=dict(replica.ports),
                exit_code=replica.exit_code,
                members=dict(replica.members),
                since=replica.since,
                healthy_since=replica.healthy_since,
            )
        elif state is not None and (before is None or before.state != state):
            instance = Instance(assignment_sequence=sequence, state=state, message=message, since=self.wall())
        elif before is not None:
            instance = before.model_copy(update={"assignment_sequence": sequence})
        else:
            return
        if instance != before:
            self._reported[name] = instance
            self._send_soon(name)

    def _send_soon(self, name: str) -> None:
        """The reports of one replica keep their order; those of different ones overtake each other."""
        if name not in self._outbox:
            self._outbox.add(name)
            self.later(self._random.uniform(0.001, 0.1), partial(self._send, name))

    def _send(self, name: str) -> None:
        if self.cut_off:
            self.later(1, partial(self._send, name))
            return
        self._outbox.discard(name)
        message = put(INSTANCE, (self.name, name), self._reported.get(name))
        self._log.publish(message)
        if self._random.random() < self._rates.duplicate_report:
            self._log.publish(message)

    def _beat(self) -> None:
        fleet = self._log.record(FLEET, ())
        seconds = fleet.heartbeat_interval_seconds if isinstance(fleet, Fleet) else 2
        self.later(seconds, self._beat)
        if not self.cut_off and self._random.random() >= self._rates.lost_sample:
            used = {
                name: InstanceUsage(cpu_percent=percent)
                for name, replica in self.replicas.items()
                if replica.alive and (percent := self.usage(replica.assignment))
            }
            self._telemetry(Sample("node", self.name, NodeSample(interval_seconds=seconds, instances=used)))
