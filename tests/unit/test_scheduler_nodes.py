"""Nodes: silence, mass loss, drains, decommissioning, the interval of the fleet."""

import pytest

from services.scheduler.queries import explain_query, place_query, state_query
from services.scheduler.telemetry import attend
from shared import subjects
from shared.errors import SteerError
from shared.model.node import Fleet, Node, NodeControl
from tests.unit.scheduler_world import World


def test_a_node_that_registers_is_alive() -> None:
    world = World()
    world.nodes(1)
    world.settle()
    assert world.status("n1").state == "alive"


def test_a_silent_node_is_suspect_after_ten_seconds_and_down_after_thirty() -> None:
    world = World()
    world.nodes(2)
    world.silenced = {"n2"}
    world.advance(9)
    assert world.status("n2").state == "alive"
    world.advance(1)
    assert world.status("n2").state == "suspect"
    world.advance(19)
    assert world.status("n2").state == "suspect"
    world.advance(1)
    assert world.status("n2").state == "down"
    assert world.status("n1").state == "alive"
    assert world.notices()["node_down/n2"].severity == "error"
    world.silenced = set()
    world.advance(2)
    assert world.status("n2").state == "alive"
    assert "node_down/n2" not in world.notices()


def test_a_suspect_node_takes_no_replicas() -> None:
    world = World()
    world.nodes(2)
    world.silenced = {"n2"}
    world.advance(12)
    world.environment(2)
    world.release(1)
    world.deploy(1)
    world.settle()
    assert [node for node, _ in world.replicas()] == ["n1", "n1"]


def test_w14_a_new_leader_marks_nobody_down_for_the_time_it_did_not_listen() -> None:
    world = World()
    world.nodes(3)
    world.advance(10)
    world.silenced = {"n1", "n2", "n3"}
    world.now = world.now.replace(minute=30)
    attend(world.state, world.now)
    world.settle()
    world.advance(9)
    assert {world.status(name).state for name in ("n1", "n2", "n3")} == {"alive"}


def test_a_node_that_was_down_is_not_alive_before_it_is_heard() -> None:
    world = World()
    world.nodes(2)
    world.silenced = {"n2"}
    world.advance(31)
    attend(world.state, world.now)
    world.advance(5)
    assert world.status("n2").state == "down"


def test_many_nodes_lost_at_once_are_held_and_confirmed_for_another_thirty_seconds() -> None:
    world = World()
    world.nodes(10)
    world.advance(4)
    world.silenced = {f"n{number}" for number in range(1, 6)}
    world.advance(35)
    assert {world.status(name).state for name in world.silenced} == {"suspect"}
    assert "5 of 10 nodes are silent" in world.notices()["mass_loss/fleet"].message
    world.advance(30)
    assert {world.status(name).state for name in world.silenced} == {"down"}


def test_four_nodes_lost_at_once_are_no_mass_loss() -> None:
    world = World()
    world.nodes(10)
    world.advance(4)
    world.silenced = {f"n{number}" for number in range(1, 5)}
    world.advance(35)
    assert {world.status(name).state for name in world.silenced} == {"down"}


def test_heartbeats_alone_write_no_records() -> None:
    world = World()
    world.nodes(20)
    world.advance(10)
    before = world.sequence
    world.advance(120)
    assert world.sequence == before


def test_a_cordoned_node_takes_no_replicas_and_keeps_those_it_has() -> None:
    world = World()
    world.serving(replicas=2, nodes=2)
    world.publish(subjects.NODE_CONTROL, ("n1",), NodeControl(schedulable=False))
    world.environment(4)
    world.cooperate()
    assert sorted(node for node, _ in world.replicas()) == ["n1", "n2", "n2", "n2"]


def test_deleting_a_node_decommissions_it() -> None:
    world = World()
    world.serving(replicas=2, nodes=3)
    world.publish(subjects.NODE, ("n1",), None)
    world.cooperate()
    assert all(node != "n1" for node, _ in world.state.tables[subjects.ASSIGNMENT])
    assert all(node != "n1" for node, _ in world.state.tables[subjects.INSTANCE])
    assert ("n1",) not in world.state.tables[subjects.NODE_STATUS]
    assert sorted(node for node, _ in world.replicas()) == ["n2", "n3"]


@pytest.mark.parametrize(("count", "interval"), [(1, 2), (1000, 2), (1001, 5), (2501, 10), (5001, 20)])
def test_the_interval_keeps_the_fleet_under_500_heartbeats_a_second(count: int, interval: int) -> None:
    world = World()
    for number in range(count):
        world.publish(subjects.NODE, (f"n{number}",), Node())
    world.step()
    assert world.get(subjects.FLEET, (), Fleet).heartbeat_interval_seconds == interval
    assert count / interval <= 500 or interval == 20


def test_the_interval_falls_only_well_below_the_limit() -> None:
    world = World()
    for number in range(1001):
        world.publish(subjects.NODE, (f"n{number}",), Node())
    world.step()
    world.publish(subjects.NODE, ("n0",), None)
    world.step()
    assert world.get(subjects.FLEET, (), Fleet).heartbeat_interval_seconds == 5
    for number in range(1, 120):
        world.publish(subjects.NODE, (f"n{number}",), None)
    world.step()
    assert world.get(subjects.FLEET, (), Fleet).heartbeat_interval_seconds == 2


def test_place_is_a_dry_run() -> None:
    world = World()
    world.serving(replicas=1, nodes=2)
    before = world.state.cluster.replicas("environment/shop/web/production")
    answer = place_query(world.state, {"environment": "shop/web/production", "count": 3}, world.now)
    assert len(answer["nodes"]) == 3
    assert world.state.cluster.replicas("environment/shop/web/production") == before
    service = {"resources": {"memory_mb": 100_000}}
    answer = place_query(world.state, {"environment": "a/b/c", "service": service}, world.now)
    assert (answer["shortfall"], answer["reasons"]["rejected"]) == (1, {"memory": 2})


@pytest.mark.parametrize(
    ("request_body", "says"),
    [
        ({}, "environment"),
        ({"environment": "shop/web"}, "environment"),
        ({"environment": "a/b/c"}, "does not exist"),
        ({"environment": "shop/web/production", "count": -1}, "count"),
        ({"environment": "shop/web/production", "count": True}, "count"),
        ({"environment": "shop/web/production", "service": {"resource": {}}}, "resource"),
    ],
)
def test_a_request_that_is_wrong_says_which_field(request_body: dict[str, object], says: str) -> None:
    world = World()
    world.serving(replicas=1)
    with pytest.raises(SteerError, match=says):
        place_query(world.state, request_body, world.now)


def test_state_and_explain_answer_for_environments_and_nodes() -> None:
    world = World()
    world.serving(replicas=1, nodes=2)
    state = state_query(world.state, {"environment": "shop/web/production"}, world.now)
    assert (state["release"], state["wanted"], [item["state"] for item in state["replicas"]]) == ("1", 1, ["healthy"])
    assert state_query(world.state, {"node": "n1"}, world.now)["unavailable"] == ""
    assert state_query(world.state, {}, world.now)["nodes"] == {"available": 2}
    explained = explain_query(world.state, {"about": "node", "key": "n1"}, world.now)
    assert explained["outcome"] == "joins: registered"
    with pytest.raises(SteerError, match="nothing has been decided"):
        explain_query(world.state, {"about": "node", "key": "n9"}, world.now)
