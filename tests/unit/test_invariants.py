"""Each invariant, broken once: what the log shows of it is found, at its sequence and subject, and nothing else is."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from shared import codec
from shared.codec import config_hash
from shared.invariants.checks import Checks, every_check
from shared.invariants.logged import Breach, Logged
from shared.model.assignment import Assignment, Desired, Instance, InstanceState, WorkloadRef
from shared.model.build import BuildPool, BuildStatus
from shared.model.build_worker import BuildReport, WorkerLease
from shared.model.deployment import ActiveRelease, Deployment, Scale
from shared.model.environment import Environment, Replicas, ServiceSpec
from shared.model.node import Capacity, Node, NodeStatus
from shared.model.pool import Pool, PoolPlacement
from shared.model.release import Release
from shared.model.route import Routed
from shared.model.run import Resources, RunSpec
from shared.model.service import DecisionRecord
from shared.runtime.encode import DELETE, OPERATION, RESTORES, SERVICE
from shared.service import Version
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    BUILD_POOL,
    BUILD_REPORT,
    BUILD_STATUS,
    DECISION,
    DEPLOYMENT,
    ENVIRONMENT,
    INSTANCE,
    NODE,
    NODE_STATUS,
    PLACEMENT,
    POOL,
    RELEASE,
    ROUTED_ENVIRONMENT,
    SCALE,
    WORKER_LEASE,
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


# -- replicas -----------------------------------------------------------------------------------------------------------


def test_a_day_in_order_breaks_nothing() -> None:
    log = Log()
    log.serving(2)
    log.store(replica("r2", 2))  # one more, in replacement
    log.store(report("r2", "healthy"))
    drained = log.store(replica("r0", 0, "drain"), read=log.sequence)
    log.store((ROUTED_ENVIRONMENT, ENV, Routed(drains={"r0": drained - 1}, version=2)))
    log.store(replica("r0", 0, "stop"), read=log.sequence)
    log.store(report("r0", "stopped"))
    log.store((ASSIGNMENT, ("n1", "r0"), None))
    assert log.breaches == []


def test_a_node_that_is_not_registered_and_one_that_is_full_take_nothing() -> None:
    log = Log()
    log.node(cpu=250)
    at = log.store(replica("r0", 0, node="elsewhere", deployment="a"))
    assert ("2", at, "steer.assignment.elsewhere.r0") in log.broken
    log.breaches.clear()
    log.store(replica("r1", 1, deployment="b"))
    log.store(replica("r1", 1, "drain", deployment="b"))
    log.store(replica("r2", 2, deployment="c"))
    assert "2" not in [each[0] for each in log.broken]
    at = log.store(replica("r3", 3, deployment="e"))  # what drains still reserves
    assert ("2", at, "steer.assignment.n1.r3") in log.broken


def test_a_capacity_that_shrank_after_it_was_read_is_not_held_against_the_decision() -> None:
    log = Log()
    log.serving(1)
    read = log.sequence
    log.store((NODE, ("n1",), Node(capacity=Capacity(cpu_millis=100, memory_mb=4096))))
    log.store(replica("r1", 1), read=read)
    assert log.breaches == []


def test_more_replicas_than_are_wanted_and_one_in_replacement_are_found() -> None:
    log = Log()
    log.serving(2)
    log.store(replica("r2", 2))
    assert log.breaches == []
    at = log.store(replica("r3", 3))
    assert log.broken == [("3", at, "steer.assignment.n1.r3")]


def test_what_a_policy_wants_counts_as_wanted() -> None:
    log = Log()
    log.serving(1, max_concurrency=1)
    log.store((SCALE, ENV, Scale(effective_replicas=4, policy="concurrency", changed_at=START)))
    for slot in range(1, 5):
        log.store(replica(f"r{slot}", slot))
    assert log.breaches == []


def test_a_slot_that_runs_twice_is_found_unless_one_of_the_two_is_over() -> None:
    log = Log()
    log.serving(2)
    log.store(report("r0", "failed"))
    log.store(replica("again", 0))
    assert log.breaches == []
    at = log.store(replica("twice", 1))
    assert ("8", at, "steer.assignment.n1.twice") in log.broken


def test_an_assignment_never_goes_back_nor_changes_what_it_runs() -> None:
    log = Log()
    log.serving(2)
    log.store(replica("r2", 2))
    log.store(report("r2", "healthy"))
    log.store(replica("r2", 2, "drain"))
    at = log.store(replica("r2", 2))
    assert log.broken == [("3", at, "steer.assignment.n1.r2")]
    log.breaches.clear()
    at = log.store(replica("r2", 2, run=RunSpec(image="exec:v2")))
    assert log.broken == [("8", at, "steer.assignment.n1.r2")]


# -- traffic ------------------------------------------------------------------------------------------------------------


def test_a_healthy_replica_that_is_needed_is_not_drained() -> None:
    log = Log()
    log.serving(2)
    at = log.store(replica("r1", 1, "drain"), read=log.sequence)
    assert log.broken == [("4", at - 1, "steer.assignment.n1.r1")]


def test_a_failure_that_was_not_known_of_yet_is_not_held_against_a_drain() -> None:
    log = Log()
    log.serving(2)
    log.store(replica("r2", 2))
    log.store(report("r2", "healthy"))
    read = log.sequence
    log.store(report("r2", "unhealthy"))
    log.store(replica("r1", 1, "drain"), read=read)
    assert log.breaches == []


def test_a_set_that_is_not_healthy_does_not_get_the_traffic() -> None:
    log = Log()
    log.serving(2)
    log.store((DEPLOYMENT, (*ENV, "d2"), deployment(2)))
    log.store(replica("s0", 0, deployment="d2"))
    log.store(replica("s1", 1, deployment="d2"))
    log.store(report("s0", "healthy"))
    at = log.store((ACTIVE, ENV, ActiveRelease(version="1", deployment="d2")))
    assert log.broken == [("4", at, "steer.active.shop.web.production")]


@pytest.mark.parametrize("drained", [True, False])
def test_a_stop_without_a_drain_and_one_before_the_routes_have_taken_it_in_are_found(drained: bool) -> None:
    log = Log()
    log.serving(1)
    log.store(replica("r1", 1))
    log.store(report("r1", "healthy"))
    if drained:
        log.store(replica("r0", 0, "drain"), read=log.sequence)
    at = log.store(replica("r0", 0, "stop"), read=log.sequence)
    assert log.broken == [("5", at - 1, "steer.assignment.n1.r0")]


def test_a_drain_ends_at_its_deadline_whatever_the_routes_say() -> None:
    log = Log()
    log.serving(1)
    log.store(replica("r1", 1))
    log.store(report("r1", "healthy"))
    log.store(replica("r0", 0, "drain"), read=log.sequence)
    log.now = START + timedelta(seconds=30)
    log.store(replica("r0", 0, "stop"), read=log.sequence)
    assert log.breaches == []


# -- builds and pools ---------------------------------------------------------------------------------------------------

BUILD: Key = ("shop", "web", "0" * 25 + "1")
OTHER: Key = ("shop", "web", "0" * 25 + "2")


def build(key: Key = BUILD, **fields: Any) -> Put:
    fields = {"state": "queued", "deadline": START + timedelta(hours=1)} | fields
    return BUILD_STATUS, key, BuildStatus(pool="default", owner="a", queued_at=START, **fields)


def lease(token: str, worker: str = "w0") -> Put:
    return WORKER_LEASE, ("default", worker), WorkerLease(owner="a", token=token)


def running(key: Key = BUILD, token: str = "t1", worker: str = "w0", attempt: int = 1) -> tuple[Put, Put]:
    return build(key, state="running", token=token, worker=worker, attempt=attempt), lease(token, worker)


def success(token: str) -> Put:
    record = BuildReport(build="/".join(BUILD), attempt=1, token=token, state="succeeded")
    return BUILD_REPORT, ("default", "w0", BUILD[2]), record


def done(token: str = "t1") -> Put:
    return build(state="succeeded", token=token, attempt=1, deadline=None)


BAD_BUILDS: dict[str, tuple[Sequence[Put], Sequence[Put]]] = {
    "a success that no worker reported": (running(), (done(),)),
    "a success of another attempt": ((*running(), success("t0")), (done("t0"),)),
    "an end that was not the end": ((*running(), success("t1"), done()), running(token="t2")),
    "a token that is given twice": ((*running(), build(), lease("")), running(OTHER)),
    "two builds on one worker": (running(), (build(OTHER, state="running", token="t1", worker="w0", attempt=1),)),
    "a build without its lease": ((), (build(state="running", token="t1", worker="w0", attempt=1),)),
    "one attempt too many": ((), running(attempt=3)),
    "more builds of an owner than the limit": (running(), running(OTHER, "t2", "w1")),
}


@pytest.mark.parametrize(("before", "bad"), BAD_BUILDS.values(), ids=list(BAD_BUILDS))
def test_what_must_not_become_of_a_build_is_found(before: Sequence[Put], bad: Sequence[Put]) -> None:
    log = Log()
    log.store((BUILD_POOL, ("default",), BuildPool(owner_limit=1, max_attempts=2)))
    log.store(build())
    for put in before:
        log.store(put) if put[0] is BUILD_REPORT else log.store(put, *_lease_of(before, put))
    assert log.breaches == []
    log.store(*bad)
    assert {each.invariant for each in log.breaches} == {"8"}


def _lease_of(puts: Sequence[Put], put: Put) -> Sequence[Put]:
    """What comes in the same commit as the start of a build."""
    started = isinstance(put[2], BuildStatus) and put[2].state == "running"
    return [each for each in puts if each[0] is WORKER_LEASE][:1] if started else ()


def test_a_limit_that_was_lowered_stops_nothing_that_runs() -> None:
    log = Log()
    log.store((BUILD_POOL, ("default",), BuildPool(owner_limit=2)))
    log.store(*running())
    read = log.sequence
    log.store((BUILD_POOL, ("default",), BuildPool(owner_limit=1)))
    log.store(*running(OTHER, "t2", "w1"), read=read)
    assert log.breaches == []


def _pool(*members: str) -> Put:
    record = Pool(
        members=members, limit=1, signature="s", run=RUN, resources=SIZE, desired=1, changed_at=START, settles_by=START
    )
    return POOL, ("shop", "python", "main", "all"), record


def _placed(name: str) -> Put:
    return PLACEMENT, ("shop", name), PoolPlacement(pooled=True, pool="python/main/all")


def test_a_pool_that_returns_to_an_earlier_signature_is_not_held_against_who_had_read_of_the_later_one() -> None:
    log = Log()
    log.node()
    kind, key, pool = _pool("f")
    assert isinstance(pool, Pool)
    later = pool.replaced(signature="b" * 64)
    log.store((kind, key, pool))
    for name, signature in (("old", pool.signature), ("new", later.signature)):
        _, replica_key, record = replica(name, deployment=signature[:16])
        assert isinstance(record, Assignment)
        of_pool = record.replaced(workload=WorkloadRef(kind="pool", key="/".join(key)))
        log.store((kind, key, pool if name == "old" else later))
        log.store((ASSIGNMENT, replica_key, of_pool))
        log.store(report(name, "healthy"))
        if name == "old":
            drained = of_pool.replaced(desired="drain")
    read = log.sequence
    log.store((kind, key, pool))
    log.store((ASSIGNMENT, ("n1", "old"), drained), read=read)
    assert log.breaches == []
    log.store((kind, key, later))
    log.store((ASSIGNMENT, ("n1", "new"), of_pool.replaced(desired="drain")), read=log.sequence)
    assert [breach.invariant for breach in log.breaches] == ["4"]


@pytest.mark.parametrize("put", [lambda: _pool("a", "b"), lambda: _placed("c")], ids=["too many", "not a member"])
def test_a_pool_has_at_most_its_limit_and_whoever_is_placed_in_it(put: Callable[[], Put]) -> None:
    log = Log()
    log.store(_pool("a"), _placed("a"))
    assert log.breaches == []
    at = log.store(put())
    assert [each[:2] for each in log.broken] == [("pools", at)]


# -- what was rejected --------------------------------------------------------------------------------------------------

GOOD = codec.encode(Environment())
OTHER_GOOD = codec.encode(Environment(replicas=Replicas(min=3)))


def answered(history: Sequence[bytes], restores: int, body: bytes) -> list[Breach]:
    """A record's bodies, `{` those that cannot be read, and then what the scheduler answers; an empty body deletes."""
    checks, subject = Checks(every_check()), ENVIRONMENT.subject(*ENV)
    headers = {SERVICE: "scheduler", RESTORES: str(restores)} | ({} if body else {OPERATION: DELETE})
    messages = [*((text, {}) for text in history), (body, headers)]
    breaches = []
    for sequence, (text, carried) in enumerate(messages, start=1):
        record = codec.decode(ENVIRONMENT, ENV, text) if text not in (b"{", b"") else None
        version = None if text == b"{" else Version(ENVIRONMENT, ENV, sequence, record, START)
        breaches += checks.take([Logged(sequence, START, subject, carried, text, version)])
    return breaches


@pytest.mark.parametrize(
    ("history", "restores", "body"),
    [
        ((GOOD, b"{"), 1, GOOD),
        ((GOOD, OTHER_GOOD, b"{", b"{"), 2, OTHER_GOOD),
        ((b"{",), 0, b""),
        ((GOOD, OTHER_GOOD), 1, GOOD),  # the second was refused for what it says
    ],
)
def test_the_last_good_version_rules_again(history: Sequence[bytes], restores: int, body: bytes) -> None:
    assert answered(history, restores, body) == []


@pytest.mark.parametrize(
    ("history", "restores", "body"),
    [
        ((GOOD, OTHER_GOOD, b"{"), 1, GOOD),
        ((GOOD, b"{"), 1, OTHER_GOOD),
        ((GOOD, b"{"), 0, b""),
        ((b"{",), 0, GOOD),
    ],
    ids=["an older one", "another than it says", "none, though there is one", "one that never was"],
)
def test_an_answer_that_is_not_the_last_good_version_is_found(
    history: Sequence[bytes], restores: int, body: bytes
) -> None:
    (breach,) = answered(history, restores, body)
    assert (breach.invariant, breach.sequence) == ("11", len(history) + 1)
