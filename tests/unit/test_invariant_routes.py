"""What routes lead to is what was known, and functions are carried over: each broken once."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.invariants.carrying import carried_functions_keep_a_worker
from shared.invariants.checks import Checks
from shared.invariants.logged import Breach, Logged
from shared.invariants.routing import routes_say_what_was_known
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.deployment import ActiveRelease
from shared.model.environment import Environment
from shared.model.node import Node, NodeStatus
from shared.model.pool import Pool
from shared.model.route import Endpoint, InternalPort, InternalService, RouteManifest
from shared.model.run import PortSpec, Resources, RunSpec
from shared.service import Version
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    ENVIRONMENT,
    INSTANCE,
    NODE,
    NODE_STATUS,
    POOL,
    ROUTE_INTERNAL,
    ROUTE_MANIFEST,
    Key,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
ENV, POOL_KEY, ONE, TWO = ("shop", "web", "prod"), ("shop", "python", "main", "a1"), ("n1", "web-1"), ("n1", "web-2")
RUN = RunSpec(image="v1", ports=(PortSpec(name="http", container_port=80),))


class Log:
    def __init__(self) -> None:
        self._checks = Checks([routes_say_what_was_known, carried_functions_keep_a_worker])
        self.sequence = 0
        self.now = START
        self.store((NODE, ("n1",), Node()), (ENVIRONMENT, ENV, Environment()))
        self.store((ACTIVE, ENV, ActiveRelease(version="1", deployment="d")))

    def store(self, *puts) -> list[Breach]:  # type: ignore[no-untyped-def]
        messages = []
        for kind, key, record in puts:
            self.sequence += 1
            version = Version(kind, key, self.sequence, record, self.now)
            messages.append(Logged(self.sequence, self.now, kind.subject(*key), {}, b"", version))
        return self._checks.take(messages)

    def replica(self, key: Key, **fields: object) -> None:
        assignment = Assignment(
            workload=WorkloadRef(kind="environment", key="/".join(ENV)),
            release="1", deployment="d", run=RUN, config_hash="", resources=Resources(), created_at=START,
        )  # fmt: skip
        self.store((ASSIGNMENT, key, assignment.model_copy(update=fields)))

    def says(self, key: Key, state: str = "healthy", **members: str) -> None:
        record = Instance(assignment_sequence=1, state="healthy", ports={"http": 1}, members=members, since=START)
        self.store((INSTANCE, key, record.model_copy(update={"state": state})))

    def routes(self, *keys: Key, covers: int | None = None) -> list[Breach]:
        endpoints = tuple(Endpoint(assignment=name, node=node, address="a:1") for node, name in keys)
        ports = (InternalPort(name="http", port=80, protocol="tcp", endpoints=endpoints),)
        manifest = RouteManifest(version=1, covers=self.sequence if covers is None else covers, digest="")
        route = InternalService(fqdn="f", environment="/".join(ENV), ports=ports)
        return self.store((ROUTE_INTERNAL, ENV, route), (ROUTE_MANIFEST, (), manifest))


@pytest.fixture
def log() -> Log:
    log = Log()
    for key in (ONE, TWO):
        log.replica(key)
        log.says(key)
    return log


def test_routes_that_lead_to_all_who_serve_are_right(log: Log) -> None:
    assert not log.routes(ONE, TWO)


def test_one_that_serves_and_is_left_out_is_found(log: Log) -> None:
    (breach,) = log.routes(ONE)
    assert (breach.invariant, "not to web-2" in breach.detail) == ("9", True)


@pytest.mark.parametrize("what", ["drain", "unhealthy", "node", "release"])
def test_one_that_does_not_serve_any_more_and_is_led_to_is_found(log: Log, what: str) -> None:
    match what:
        case "drain":
            log.replica(TWO, desired="drain")
        case "unhealthy":
            log.says(TWO, "unhealthy")
        case "release":
            log.replica(TWO, release="2")
        case _:
            log.store((NODE_STATUS, ("n1",), NodeStatus(state="down", since=START)))
    (breach,) = log.routes(ONE, TWO)
    assert "web-2" in breach.detail.partition(" too many")[0]


def test_what_came_after_what_is_covered_is_not_held_against_a_version(log: Log) -> None:
    covers = log.sequence
    log.replica(TWO, desired="drain")
    assert not log.routes(ONE, TWO, covers=covers)


def _pool(log: Log) -> None:
    pool = Pool(
        members=("f",), limit=2, signature="s" * 64, run=RUN, resources=Resources(), desired=1, changed_at=START,
        settles_by=START,
    )  # fmt: skip
    log.store((POOL, POOL_KEY, pool))
    for key in (ONE, TWO):
        log.replica(key, workload=WorkloadRef(kind="pool", key="/".join(POOL_KEY)))


def _drain(log: Log) -> list[Breach]:
    old = log._checks.view.get(ASSIGNMENT, ONE, Assignment)
    assert old is not None
    return log.store((ASSIGNMENT, ONE, old.replaced(desired="drain")))


@pytest.mark.parametrize("said", ["ready", "loading"])
def test_a_worker_leaves_when_another_one_has_its_functions(said: str) -> None:
    log = Log()
    _pool(log)
    log.says(ONE, f="ready")
    log.says(TWO, "running", f=said)
    assert [breach.detail for breach in _drain(log)] == ([] if said == "ready" else ["leaves ['f'] without a worker"])


def test_a_worker_that_has_had_its_minute_needs_to_have_loaded_nothing() -> None:
    log = Log()
    _pool(log)
    log.says(ONE, f="ready")
    log.says(TWO, f="failed")
    log.now += timedelta(minutes=1)
    assert not _drain(log)
