"""What must hold of builds and of pools, broken once."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from shared.model.assignment import Assignment, WorkloadRef
from shared.model.build import BuildPool, BuildStatus
from shared.model.build_worker import BuildReport, WorkerLease
from shared.model.pool import Pool, PoolPlacement
from shared.subjects import (
    ASSIGNMENT,
    BUILD_POOL,
    BUILD_REPORT,
    BUILD_STATUS,
    PLACEMENT,
    POOL,
    WORKER_LEASE,
    Key,
)
from tests.unit.invariant_log import RUN, SIZE, START, Log, Put, replica, report

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
