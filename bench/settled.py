"""A cluster at rest, as a log: the real decisions of the scheduler's pure core, made in memory, agents answering at once.

The history is written to an empty stream as it is, so its sequences are those that the records speak of. One is made
once in a run: it takes the core a quarter of a millisecond for each replica.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from pydantic import BaseModel

from bench.harness import quiet
from bench.raw import Raw, raw
from bench.worlds import POOLS, node
from services.scheduler.service import service
from services.scheduler.state import State
from shared import codec, subjects
from shared.model.assignment import Assignment, Instance
from shared.model.environment import Environment, Replicas, ServiceSpec
from shared.model.node import Capacity, Node
from shared.model.release import DeployRequest, Release
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec
from shared.runtime.encode import messages
from shared.service import Plan, Version
from shared.subjects import Key, Kind

SCHEDULER = service()
REPLICAS = 5
CPU_MILLIS, MEMORY_MB = 64_000, 262_144


@dataclass(slots=True)
class History:
    """Every version written so far, and the scheduler's state after it."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    log: list[Raw] = field(default_factory=list)
    assignments: dict[Key, int] = field(default_factory=dict)
    """The replicas that run, and the sequences of their assignments."""
    state: State = field(default_factory=State)
    _nodes: list[str] = field(default_factory=list)

    def write(self, kind: Kind, key: Key, record: BaseModel) -> None:
        """A record of a user or a doer."""
        self._append(raw(kind.subject(*key), codec.encode(record)), kind, key, record)
        if kind is subjects.NODE:
            self._nodes.append(key[0])

    def node_names(self) -> list[str]:
        return sorted(self._nodes)

    def rest(self) -> None:
        """Decide, and let agents answer, until nothing is left to do."""
        SCHEDULER.attend(self.state, self.now)
        while True:
            plan = SCHEDULER.decide(self.state, self.now)
            self._commit(plan)
            SCHEDULER.settle(self.state, plan, self.now)
            if not plan.decisions and plan.wake_at != self.now:
                return

    def _commit(self, plan: Plan) -> None:
        started: list[tuple[Key, int]] = []
        for message in messages("scheduler", plan, len(self.log), self.now):
            line = raw(message.subject, message.body, message.headers("scheduler", 1))
            self._append(line, message.kind, message.key, message.record)
            if isinstance(message.record, Assignment):
                started.append((message.key, len(self.log)))
        for key, sequence in started:
            self.assignments[key] = sequence
            self.write(subjects.INSTANCE, key, healthy(sequence, self.now))

    def _append(self, message: Raw, kind: Kind, key: Key, record: BaseModel | None) -> None:
        self.log.append(message)
        SCHEDULER.fold(self.state, Version(kind, key, len(self.log), record, self.now))


def healthy(sequence: int, now: datetime) -> Instance:
    return Instance(assignment_sequence=sequence, state="healthy", ports={"http": 20000}, since=now, healthy_since=now)


def nodes(history: History, count: int) -> None:
    """Nodes of 50 classes; the scheduler takes them in."""
    for number in range(count):
        item = node(number, CPU_MILLIS, MEMORY_MB)
        capacity = Capacity(cpu_millis=item.cpu_millis, memory_mb=item.memory_mb)
        record = Node(labels=dict(item.labels), platform=item.platform, capacity=capacity, drivers=("exec",))
        history.write(subjects.NODE, (item.name,), record)
    history.rest()


def environments(history: History, count: int) -> None:
    """Environments of five replicas with one release each; nothing is deployed yet."""
    for number in range(count):
        key, spec = environment_key(number), spec_of(number)
        history.write(subjects.ENVIRONMENT, key, Environment(replicas=Replicas(min=REPLICAS), service=spec))
        history.write(subjects.RELEASE, (*key, "1"), Release(image="exec:shop", service=spec))
    history.rest()


def spec_of(number: int) -> ServiceSpec:
    """What an environment runs: no two run quite the same."""
    return ServiceSpec(
        resources=Resources(cpu_millis=100, memory_mb=256),
        run=RunSpec(
            command=("python", "-m", "shop.web"),
            env={"APP": f"app-{number}", "POOL": POOLS[0], "LOG_LEVEL": "info"},
            ports=(PortSpec(name="http", container_port=8080),),
            healthcheck=Healthcheck(path="/healthz"),
        ),
    )


def environment_key(number: int) -> Key:
    return ("shop", f"app-{number}", "production")


def requests(count: int) -> Iterator[tuple[Key, DeployRequest]]:
    """One deploy request for each environment."""
    request = DeployRequest(version="1")
    for number in range(count):
        yield (*environment_key(number), f"{number:026}"), request


def living(node_count: int, assignment_count: int) -> History:
    """Everything deployed, every replica healthy; with a state that can be decided on."""
    history = History()
    count = assignment_count // REPLICAS
    with quiet():
        nodes(history, node_count)
        environments(history, count)
        for key, request in requests(count):
            history.write(subjects.DEPLOY, key, request)
        history.rest()
    return history


@cache
def settled(node_count: int, assignment_count: int) -> History:
    """The same for those who only read it: kept for the whole run, without its state, which takes a gigabyte."""
    history = living(node_count, assignment_count)
    history.state = State()
    return history
