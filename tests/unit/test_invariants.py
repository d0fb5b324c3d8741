"""Each invariant, broken once: what the log shows of it is found, at its sequence and subject, and nothing else is."""

from datetime import timedelta

import pytest

from shared.model.deployment import ActiveRelease, Scale
from shared.model.node import Capacity, Node
from shared.model.route import Routed
from shared.model.run import RunSpec
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    DEPLOYMENT,
    NODE,
    ROUTED_ENVIRONMENT,
    SCALE,
)
from tests.unit.invariant_log import ENV, START, Log, deployment, replica, report

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
