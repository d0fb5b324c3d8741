"""A pooler on a log of its own: publish a record, let it decide until it is quiet, look at what came out."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from services.pooler.access import PoolKey, pool_of
from services.pooler.decide import decide
from services.pooler.state import fold, settle
from services.pooler.world import SERVICE, State
from shared import subjects
from shared.codec import config_hash
from shared.model.assignment import Assignment, Desired, Instance, WorkloadRef
from shared.model.function import Function, FunctionAccess, Pooling
from shared.model.pool import Pool, PoolingPolicy, PoolPlacement, Runtime
from shared.model.run import PortSpec, RunSpec
from shared.model.service import DecisionRecord, Notice
from shared.service import Plan, Version
from shared.subjects import Key, Kind

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
NS = "shop"
HOST = RunSpec(image="exec:host", command=("host",), ports=(PortSpec(name="http", container_port=8000),))
NO_ACCESS = "cf738fafaa09191b"
"""The access hash of a function that reaches nothing."""
MAIN = f"python/main/{NO_ACCESS}"


@dataclass
class World:
    """`now` moves only when a test says so."""

    state: State = field(default_factory=State)
    now: datetime = EPOCH
    sequence: int = 0
    log: list[Version] = field(default_factory=list)
    wake_at: datetime | None = None
    current: dict[tuple[Kind, Key], BaseModel | None] = field(default_factory=dict)
    """The last record of each subject; None = deleted."""

    def publish(self, kind: Kind, key: Key, record: BaseModel | None) -> int:
        self.sequence += 1
        version = Version(kind, key, self.sequence, record, self.now)
        self.log.append(version)
        self.current[kind, key] = record
        fold(self.state, version)
        return self.sequence

    def step(self) -> Plan:
        """One pass, committed."""
        plan = decide(self.state, self.now)
        assert decide(self.state, self.now) == plan, "a pass changed the state"
        assert plan.size <= 1000
        written: set[str] = set()
        read = self.state.sequence
        for decision in plan.decisions:
            for change in decision.changes:
                assert change.subject not in written, f"{change.subject} is written twice"
                written.add(change.subject)
                self.publish(change.kind, change.key, change.record)
            if decision.explain:
                record = DecisionRecord(
                    read_sequence=read, now=self.now, outcome=decision.outcome, reasons=dict(decision.reasons)
                )
                key = (SERVICE, decision.about, *decision.key)
                assert subjects.DECISION.subject(*key) not in written
                self.publish(subjects.DECISION, key, record)
        settle(self.state, plan, self.now)
        self.wake_at = plan.wake_at
        return plan

    def settle(self) -> list[str]:
        """Pass after pass until nothing is left to decide; the outcomes in order."""
        outcomes = []
        for _ in range(500):
            plan = self.step()
            outcomes += [decision.outcome for decision in plan.decisions]
            if not plan.decisions and not (self.wake_at is not None and self.wake_at <= self.now and plan.looks):
                assert plan.wake_at is None or plan.wake_at > self.now, "it would spin"
                return outcomes
        raise AssertionError("it never comes to rest: " + "; ".join(outcomes[-5:]))

    def advance(self, seconds: float) -> list[str]:
        """Time goes on, wake-up by wake-up."""
        end = self.now + timedelta(seconds=seconds)
        outcomes = self.settle()
        while self.now < end:
            self.now = min(end, self.wake_at) if self.wake_at is not None else end
            outcomes += self.settle()
        return outcomes

    # what people do

    def runtime(self, name: str = "python", **fields: Any) -> None:
        self.publish(subjects.RUNTIME, (name,), Runtime(run=fields.pop("run", HOST), **fields))

    def policy(self, admission: Any = "by_name", limit: int = 16, namespace: str = NS) -> None:
        self.publish(subjects.POOLING_POLICY, (namespace,), PoolingPolicy(admission=admission, limit=limit))

    def function(self, name: str, worker: str | None = "main", namespace: str = NS, **fields: Any) -> None:
        fields = {"runtime": "python", "handler": "m.handle", "artifact": f"{name}/v1"} | fields
        self.publish(subjects.FUNCTION, (namespace, name), Function(pooling=Pooling(worker=worker), **fields))

    def functions(self, *names: str, **fields: Any) -> None:
        for name in names:
            self.function(name, **fields)

    def grant(self, name: str, *grants: str, namespace: str = NS) -> None:
        self.publish(subjects.ACCESS, (namespace, name), FunctionAccess(grants=grants))

    def delete(self, name: str, namespace: str = NS) -> None:
        self.publish(subjects.FUNCTION, (namespace, name), None)

    # what doers do

    def worker(self, pool: PoolKey, states: dict[str, str] | None = None, desired: Desired = "run") -> Key:
        """A worker of the pool as it is now, whose host says this of its members; by default all are ready."""
        record = self.state.pool(pool)
        assert record is not None
        place = ("n1", f"{pool.worker.lstrip('_')}-{pool.access[:6]}-{record.signature[:6]}")
        assignment = Assignment(
            workload=WorkloadRef(kind="pool", key="/".join(pool)),
            run=record.run,
            config_hash=config_hash(record.run, record.resources),
            resources=record.resources,
            created_at=self.now,
            desired=desired,
        )
        self.publish(subjects.ASSIGNMENT, place, assignment)
        members = dict.fromkeys(record.members, "ready") if states is None else states
        self.report(place, members)
        return place

    def report(self, place: Key, members: dict[str, str]) -> None:
        instance = Instance(assignment_sequence=self.sequence, state="healthy", members=members, since=self.now)
        self.publish(subjects.INSTANCE, place, instance)

    def cooperate(self, rounds: int = 200) -> None:
        """Every pool gets its worker, all of whose members become ready, until all is quiet."""
        for _ in range(rounds):
            self.settle()
            changing = list(self.state.changing_until)
            if not changing:
                return
            for pool in changing:
                self.worker(pool)
        raise AssertionError("pools never come to rest")

    # what came out

    def pools(self, namespace: str = NS) -> dict[str, tuple[str, ...]]:
        """The members of each pool."""
        found = {}
        for key, version in sorted(self.state.tables[subjects.POOL].items()):
            if key[0] == namespace and isinstance(version.record, Pool):
                found[str(PoolKey(*key))] = version.record.members
        return found

    def pool(self, text: str = MAIN, namespace: str = NS) -> Pool:
        record = self.state.pool(PoolKey(namespace, *text.split("/")))
        assert record is not None, f"no pool {text}"
        return record

    def placement(self, name: str, namespace: str = NS) -> PoolPlacement:
        record = self.state.placement((namespace, name))
        assert record is not None, f"no placement of {name}"
        return record

    def rejected(self, namespace: str = NS) -> list[str]:
        return [
            key[1]
            for key, version in sorted(self.state.tables[subjects.PLACEMENT].items())
            if key[0] == namespace and isinstance(version.record, PoolPlacement) and version.record.rejected
        ]

    def decision(self, about: str, *key: str) -> DecisionRecord | None:
        return self.state.get(subjects.DECISION, (SERVICE, about, *key), DecisionRecord)

    def notices(self) -> dict[str, Notice]:
        return {
            "/".join(key[1:]): version.record
            for key, version in self.state.tables[subjects.NOTICE].items()
            if isinstance(version.record, Notice)
        }


def main(access: str = NO_ACCESS) -> PoolKey:
    return PoolKey(NS, "python", "main", access)


def world(*names: str, **fields: Any) -> World:
    """A runtime, and these functions in one pool that runs."""
    it = World()
    it.runtime()
    it.functions(*names, **fields)
    it.cooperate()
    return it


def granted(*grants: str) -> PoolKey:
    function = Function(runtime="python", handler="m.h", artifact="a", pooling=Pooling(worker="main"))
    return pool_of(NS, "x", function, FunctionAccess(grants=grants))
