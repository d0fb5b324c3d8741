"""A log whose every commit is checked, and records to fill it with."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from shared.codec import config_hash
from shared.invariants.checks import Checks, every_check
from shared.invariants.logged import Breach, Logged
from shared.model.assignment import Assignment, Desired, Instance, InstanceState, WorkloadRef
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment, Replicas, ServiceSpec
from shared.model.node import Capacity, Node, NodeStatus
from shared.model.release import Release
from shared.model.run import Resources, RunSpec
from shared.model.service import DecisionRecord
from shared.service import Version
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    DECISION,
    DEPLOYMENT,
    ENVIRONMENT,
    INSTANCE,
    NODE,
    NODE_STATUS,
    RELEASE,
    Key,
    Kind,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
ENV: Key = ("shop", "web", "production")
RUN = RunSpec(image="exec:v1")
SIZE = Resources(cpu_millis=100, memory_mb=256)
Put = tuple[Kind, Key, BaseModel | None]


class Log:
    """`breaches` collects what every commit breaks."""

    def __init__(self) -> None:
        self._checks = Checks(every_check())
        self.sequence = 0
        self.now = START
        self.breaches: list[Breach] = []

    def store(self, *puts: Put, read: int | None = None) -> int:
        """One commit; with `read` its explanation says that it was decided on the log up to there. Its last sequence."""
        if read is not None:
            changes = tuple(kind.subject(*key) for kind, key, _ in puts)
            told = DecisionRecord(read_sequence=read, now=self.now, outcome="", changes=changes)
            puts = (*puts, (DECISION, ("scheduler", "environment", *ENV), told))
        messages = []
        for kind, key, record in puts:
            self.sequence += 1
            version = Version(kind, key, self.sequence, record, self.now)
            messages.append(Logged(self.sequence, self.now, kind.subject(*key), {}, b"", version))
        self.breaches += self._checks.take(messages)
        return self.sequence

    @property
    def broken(self) -> list[tuple[str, int, str]]:
        return [(each.invariant, each.sequence, each.subject) for each in self.breaches]

    def node(self, name: str = "n1", cpu: int = 1000) -> None:
        self.store((NODE, (name,), Node(capacity=Capacity(cpu_millis=cpu, memory_mb=4096))))
        self.store((NODE_STATUS, (name,), NodeStatus(state="alive", since=self.now)))

    def serving(self, replicas: int, **service: Any) -> None:
        """Release 1 serves on a node, as wide as is wanted."""
        self.node()
        bounds = Replicas(min=replicas, max=replicas + 5)
        self.store((ENVIRONMENT, ENV, Environment(replicas=bounds)))
        self.store((RELEASE, (*ENV, "1"), Release(image="exec:v1", service=ServiceSpec(**service))))
        self.store((DEPLOYMENT, (*ENV, "d1"), deployment(replicas)))
        for slot in range(replicas):
            self.store(replica(f"r{slot}", slot))
            self.store(report(f"r{slot}", "healthy"))
        self.store((ACTIVE, ENV, ActiveRelease(version="1", deployment="d1")))
        self.store((DEPLOYMENT, (*ENV, "d1"), deployment(replicas).replaced(phase="succeeded", deadline=None)))
        assert self.breaches == []


def deployment(replicas: int) -> Deployment:
    deadline = START + timedelta(minutes=10)
    return Deployment(
        phase="starting", version="1", requested_at_sequence=1, replicas=replicas, phase_since=START, deadline=deadline
    )


def replica(
    id: str, slot: int = 0, desired: Desired = "run", node: str = "n1", deployment: str = "d1", run: RunSpec = RUN
) -> Put:
    record = Assignment(
        workload=WorkloadRef(kind="environment", key="/".join(ENV)),
        release="1",
        desired=desired,
        run=run,
        config_hash=config_hash(run, SIZE),
        deployment=deployment,
        slot=slot,
        resources=SIZE,
        created_at=START,
        drain_deadline=START + timedelta(seconds=30) if desired != "run" else None,
    )
    return ASSIGNMENT, (node, id), record


def report(id: str, state: InstanceState, node: str = "n1") -> Put:
    return INSTANCE, (node, id), Instance(assignment_sequence=1, state=state, since=START)
