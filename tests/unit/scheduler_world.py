"""A scheduler on a log of its own: publish a record, let it decide until it is quiet, look at what came out."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from services.scheduler.decide import decide
from services.scheduler.indexes import fold
from services.scheduler.looks import settle
from services.scheduler.service import service
from services.scheduler.state import SERVICE, State
from services.scheduler.telemetry import attend, observe
from shared import subjects
from shared.model.assignment import Assignment, Instance, InstanceState
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment, Placement, Replicas, ServiceSpec
from shared.model.live import NodeSample, ProxySample
from shared.model.node import Capacity, Node, NodeStatus
from shared.model.release import DeployRequest, Release
from shared.model.route import Routed
from shared.model.run import Resources, RunSpec
from shared.model.service import DecisionRecord, Notice
from shared.service import Change, Plan, Sample, Version
from shared.subjects import Key, Kind
from tests.unit.made_again import MadeAgain

M = TypeVar("M", bound=BaseModel)
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
ENV: Key = ("shop", "web", "production")


def request_id(number: int) -> str:
    return f"{number:026d}"


@dataclass
class World:
    """`now` moves only when a test says so."""

    state: State = field(default_factory=State)
    now: datetime = EPOCH
    sequence: int = 0
    log: list[tuple[int, Change]] = field(default_factory=list)
    wake_at: datetime | None = None
    again: MadeAgain = field(default_factory=lambda: MadeAgain(service()))

    def __post_init__(self) -> None:
        attend(self.state, self.now)

    def publish(self, kind: Kind, key: Key, record: BaseModel | None) -> int:
        self.sequence += 1
        self.log.append((self.sequence, Change(kind, key, record)))
        version = Version(kind, key, self.sequence, record, self.now)
        fold(self.state, version)
        self.again.fold(version)
        return self.sequence

    def step(self) -> Plan:
        """One pass, committed."""
        plan = decide(self.state, self.now)
        assert decide(self.state, self.now) == plan, "a pass changed the state"
        assert plan.size <= 1000
        self.again.check(plan, self.now)
        for decision in plan.decisions:
            unfenced = decision.explain or any(change.expected is None for change in decision.changes)
            assert unfenced, f"no message of {decision.outcome!r} can carry the fence"
        for decision in plan.decisions:
            for change in decision.changes:
                self.publish(change.kind, change.key, change.record)
            if decision.explain:
                record = DecisionRecord(
                    read_sequence=self.state.sequence,
                    now=self.now,
                    outcome=decision.outcome,
                    reasons=dict(decision.reasons),
                    observation=dict(decision.observation),
                )
                self.publish(subjects.DECISION, (SERVICE, decision.about, *decision.key), record)
        settle(self.state, plan, self.now)
        self.wake_at = plan.wake_at
        return plan

    def settle(self) -> list[str]:
        """Pass after pass until nothing is left to decide; the outcomes in order."""
        outcomes = []
        for _ in range(200):
            plan = self.step()
            outcomes += [decision.outcome for decision in plan.decisions]
            if not plan.decisions:
                assert plan.wake_at is None or plan.wake_at > self.now, "it would spin"
                return outcomes
        raise AssertionError("it never comes to rest: " + "; ".join(outcomes[-5:]))

    def advance(self, seconds: float, beat: bool = True) -> list[str]:
        """Time goes on, wake-up by wake-up; the nodes that are not silenced send their heartbeats."""
        end = self.now + timedelta(seconds=seconds)
        outcomes = self.settle()
        while True:
            next_beat = self.now + timedelta(seconds=2)
            self.now = min(end, next_beat, self.wake_at if self.wake_at and self.wake_at > self.now else end)
            if beat:
                self.beat()
            outcomes += self.settle()
            if self.now >= end:
                return outcomes

    silenced: set[str] = field(default_factory=set)
    proxies: dict[str, int | None] = field(default_factory=dict)
    """Live proxies and the version each serves; None = always the newest."""

    def beat(self) -> None:
        for name in self.names(subjects.NODE):
            if name not in self.silenced:
                observe(self.state, Sample("node", name, NodeSample(interval_seconds=2)), self.now)
        for name, version in self.proxies.items():
            body = ProxySample(version=10**6 if version is None else version)
            observe(self.state, Sample("proxy", name, body), self.now)

    def names(self, kind: Kind) -> list[str]:
        return sorted(key[0] for key, version in self.state.tables[kind].items() if version.record is not None)

    def get(self, kind: Kind, key: Key, model: type[M]) -> M:
        record = self.state.get(kind, key, model)
        assert record is not None, f"no {kind.name} {key}"
        return record

    # what people and doers do

    def node(self, name: str, region: str = "", cpu: int = 4000, memory: int = 8192, **fields: Any) -> None:
        labels = {"region": region} if region else {}
        node = Node(labels=labels, capacity=Capacity(cpu_millis=cpu, memory_mb=memory), **fields)
        self.publish(subjects.NODE, (name,), node)

    def nodes(self, count: int, **fields: Any) -> None:
        for number in range(1, count + 1):
            self.node(f"n{number}", **fields)

    def environment(self, replicas: int = 1, most: int | None = None, **fields: Any) -> None:
        self.publish(subjects.ENVIRONMENT, ENV, Environment(replicas=Replicas(min=replicas, max=most), **fields))

    def release(self, version: int = 1, **service: Any) -> None:
        service.setdefault("run", RunSpec(command=("serve",)))
        self.publish(
            subjects.RELEASE, (*ENV, str(version)), Release(image=f"exec:v{version}", service=ServiceSpec(**service))
        )

    def deploy(self, version: int = 1, id: int | None = None, **fields: Any) -> str:
        name = request_id(version if id is None else id)
        self.publish(subjects.DEPLOY, (*ENV, name), DeployRequest(version=str(version), **fields))
        return name

    def report(self, key: Key, state: InstanceState, **fields: Any) -> None:
        version = self.state.tables[subjects.ASSIGNMENT].get(key)
        instance = Instance(
            assignment_sequence=version.sequence if version else 0, state=state, since=self.now, **fields
        )
        self.publish(subjects.INSTANCE, key, instance)

    def replicas(self, desired: str = "run", release: int | None = None) -> dict[Key, Assignment]:
        found = {}
        for key, version in sorted(self.state.tables[subjects.ASSIGNMENT].items()):
            record = version.record
            assert isinstance(record, Assignment)
            if record.desired == desired and (release is None or record.release == str(release)):
                found[key] = record
        return found

    def all_healthy(self) -> None:
        """Every wanted replica that has not said so becomes healthy."""
        self.all_healthy_but()

    def all_healthy_but(self, *sick: Key) -> None:
        for key in self.replicas("run").keys() - set(sick):
            instance = self.state.get(subjects.INSTANCE, key, Instance)
            if instance is None or instance.state not in ("healthy", "failed", "stopped"):
                self.report(key, "healthy", healthy_since=self.now, ports={"http": 8080})

    def route(self) -> None:
        """The routes take in every drain there is."""
        drains = {key[1]: self.state.sequence_of(subjects.ASSIGNMENT, key) for key in self.replicas("drain")}
        if drains:
            self.publish(subjects.ROUTED_ENVIRONMENT, ENV, Routed(drains=drains, version=self.sequence))

    def agents_stop(self) -> None:
        for key in self.replicas("stop"):
            instance = self.state.get(subjects.INSTANCE, key, Instance)
            if instance is None or instance.state not in ("failed", "stopped"):
                self.report(key, "stopped")
        for key in list(self.state.tables[subjects.INSTANCE]):
            if key not in self.state.tables[subjects.ASSIGNMENT]:
                self.publish(subjects.INSTANCE, key, None)

    def cooperate(self, rounds: int = 12) -> list[str]:
        """Agents and routes do what they are asked, without time going on, until all is quiet."""
        outcomes = self.settle()
        for _ in range(rounds):
            self.all_healthy()
            self.route()
            self.agents_stop()
            outcomes += self.settle()
        return outcomes

    def serving(self, replicas: int = 2, nodes: int = 3, **service: Any) -> None:
        """An environment whose release 1 serves."""
        self.nodes(nodes)
        self.environment(replicas, drain_window_seconds=60)
        self.release(1, **service)
        self.deploy(1)
        self.cooperate()
        assert self.active().version == "1"

    def active(self) -> ActiveRelease:
        return self.get(subjects.ACTIVE, ENV, ActiveRelease)

    def deployment(self, id: str) -> Deployment:
        return self.get(subjects.DEPLOYMENT, (*ENV, id), Deployment)

    def status(self, node: str) -> NodeStatus:
        return self.get(subjects.NODE_STATUS, (node,), NodeStatus)

    def decision(self, about: str = "environment", key: Key = ENV) -> DecisionRecord:
        return self.get(subjects.DECISION, (SERVICE, about, *key), DecisionRecord)

    def notices(self) -> dict[str, Notice]:
        return {
            "/".join(key[1:]): version.record
            for key, version in self.state.tables[subjects.NOTICE].items()
            if isinstance(version.record, Notice)
        }


def spec(cpu: int = 100, memory: int = 256, constraints: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """Arguments of a `ServiceSpec`."""
    return {
        "resources": Resources(cpu_millis=cpu, memory_mb=memory),
        "placement": Placement(constraints=constraints or {}),
        **fields,
    }
