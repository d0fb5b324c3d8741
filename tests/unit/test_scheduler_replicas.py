"""Replicas: how many, and how one takes the place of another. Scenario names are those of the reference."""

import pytest

from shared import subjects
from shared.model.assignment import Instance
from shared.model.environment import Environment, Placement, Replicas
from shared.model.node import NodeControl
from shared.model.route import Routed
from tests.unit.scheduler_world import ENV, World, spec


@pytest.fixture
def world() -> World:
    return World()


def test_scale_from_zero_to_three_puts_one_on_each_node(world: World) -> None:
    world.serving(replicas=3, nodes=3)
    assert [node for node, _ in world.replicas()] == ["n1", "n2", "n3"]
    assert [record.slot for record in world.replicas().values()] == [0, 1, 2]


def test_scale_from_three_to_one_drains_two_and_stops_them_when_the_routes_have_moved(world: World) -> None:
    world.serving(replicas=3)
    world.environment(1)
    world.settle()
    assert (len(world.replicas("run")), len(world.replicas("drain"))) == (1, 2)
    world.route()
    world.settle()
    assert len(world.replicas("drain")) == 2, "a leader that has just begun may not know every proxy yet"
    world.advance(15)
    assert (len(world.replicas("run")), len(world.replicas("stop"))) == (1, 2)
    world.agents_stop()
    world.settle()
    assert (len(world.replicas("run")), len(world.replicas("stop"))) == (1, 0)


def test_no_active_release_runs_nothing(world: World) -> None:
    world.nodes(3)
    world.environment(3)
    world.release(1)
    world.settle()
    assert world.replicas() == {}


def test_repeated_passes_never_place_twice(world: World) -> None:
    world.serving(replicas=3)
    before = world.sequence
    for key in list(world.state.tables[subjects.ASSIGNMENT]):
        world.report(key, "healthy", healthy_since=world.now)
    world.settle()
    assert world.sequence == before + 3


def test_a_replica_that_failed_is_replaced_at_once_and_stopped_in_the_same_commit(world: World) -> None:
    world.serving(replicas=2)
    first = next(iter(world.replicas()))
    world.report(first, "failed", exit_code=137)
    plan = world.step()
    (decision,) = plan.decisions
    changed = {change.key[1]: change.record for change in decision.changes}
    assert changed[first[1]].desired == "stop"  # type: ignore[union-attr]
    new = [record for name, record in changed.items() if name != first[1]]
    assert new[0].replaces == first[1]  # type: ignore[union-attr]
    assert new[0].slot == 0, "the slot of one that is gone is free again"  # type: ignore[union-attr]
    assert "exit code 137" in decision.outcome


def test_the_second_failure_of_a_slot_waits_ten_seconds_then_twenty(world: World) -> None:
    world.serving(replicas=1)
    waits = []
    for _ in range(4):
        (key,) = world.replicas()
        world.report(key, "failed", exit_code=1)
        world.settle()
        (record,) = world.replicas().values()
        waits.append((record.not_before - world.now).total_seconds() if record.not_before else 0)
        world.agents_stop()
        world.settle()
    assert waits == [0, 10, 20, 40]


def test_ten_minutes_of_health_start_the_count_of_failures_anew(world: World) -> None:
    world.serving(replicas=1)
    for _ in range(3):
        (key,) = world.replicas()
        world.report(key, "failed", exit_code=1)
        world.settle()
    (key,) = world.replicas()
    world.report(key, "healthy", healthy_since=world.now)
    healthy_since = world.now
    world.advance(600)
    world.report(key, "failed", exit_code=1, healthy_since=healthy_since)
    world.settle()
    (record,) = world.replicas().values()
    assert record.not_before is None


def test_w8_a_replica_that_stays_unhealthy_is_replaced_and_serves_until_the_other_is_healthy(world: World) -> None:
    world.serving(replicas=1)
    (old,) = world.replicas()
    world.report(old, "unhealthy", healthy_since=world.now)
    world.advance(59)
    assert list(world.replicas()) == [old]
    world.advance(1)
    assert len(world.replicas("run")) == 2, "the other starts first"
    world.all_healthy_but(old)
    world.settle()
    assert old in world.replicas("drain")


def test_a_replica_that_never_becomes_healthy_is_replaced_after_its_deadline(world: World) -> None:
    world.serving(replicas=1)
    (first,) = world.replicas()
    world.report(first, "failed")
    world.settle()
    (second,) = world.replicas()
    world.report(second, "running")
    world.advance(179)
    assert list(world.replicas()) == [second]
    world.advance(1)
    assert len(world.replicas("run")) == 2
    assert "not healthy within 180 s" in world.decision().reasons["leaving"][second[1]]


def test_at_most_one_extra_replica_runs_at_a_time(world: World) -> None:
    world.serving(replicas=3)
    for key in list(world.replicas()):
        world.report(key, "unhealthy", healthy_since=world.now)
    world.advance(200)
    assert len(world.replicas("run")) == 4


def test_a_node_that_is_down_loses_its_replicas_at_once(world: World) -> None:
    world.serving(replicas=3)
    world.silenced = {"n2"}
    world.advance(31)
    assert world.status("n2").state == "down"
    assert sorted(node for node, _ in world.replicas("run")) == ["n1", "n1", "n3"]
    assert [node for node, _ in world.replicas("stop")] == ["n2"]


def test_a_slot_that_may_still_run_on_a_lost_node_is_not_given_again(world: World) -> None:
    world.serving(replicas=3)
    world.silenced = {"n2"}
    world.advance(31)
    assert sorted(record.slot for record in world.replicas("run").values()) == [0, 2, 3]


def test_draining_a_node_replaces_each_replica_before_it_is_drained(world: World) -> None:
    world.serving(replicas=3, nodes=4)
    world.publish(subjects.NODE_CONTROL, ("n1",), NodeControl(drain=True))
    world.settle()
    assert len(world.replicas("run")) == 4
    assert world.status("n1").drain == "draining"
    world.cooperate()
    world.advance(15)
    world.cooperate()
    assert all(node != "n1" for node, _ in world.replicas("run"))
    assert world.status("n1").drain == "drained"


def test_w28_a_draining_replica_reserves_until_it_is_gone(world: World) -> None:
    world.node("n1", memory=512)
    world.environment(2)
    world.release(1)
    world.deploy(1)
    world.cooperate()
    world.environment(1)
    world.settle()
    assert len(world.replicas("drain")) == 1
    world.environment(2)
    world.settle()
    assert len(world.replicas("run")) == 1
    assert world.decision().reasons["pending"]["rejected"] == {"memory": 1}


def test_w29_scale_down_takes_unhealthy_ones_then_the_most_crowded_node_then_the_newest(world: World) -> None:
    world.serving(replicas=4, nodes=2)
    sick = next(iter(world.replicas()))
    world.report(sick, "unhealthy", healthy_since=world.now)
    world.settle()
    world.environment(3)
    world.settle()
    assert list(world.replicas("drain")) == [sick]
    world.environment(2)
    world.settle()
    others = [key for key in world.replicas("drain") if key != sick]
    assert [node for node, _ in others] == ["n2"], "n2 has two, n1 one"


def test_w25_an_edit_of_min_and_max_clamps_at_once(world: World) -> None:
    world.serving(replicas=2)
    world.publish(subjects.ENVIRONMENT, ENV, Environment(replicas=Replicas(min=4, max=4)))
    world.settle()
    assert len(world.replicas()) == 4


def test_what_has_no_place_says_why_and_is_placed_when_capacity_comes(world: World) -> None:
    world.node("n1", memory=600)
    world.environment(3)
    world.release(1)
    id = world.deploy(1)
    world.settle()
    pending = world.decision("deployment", (*ENV, id)).reasons["pending"]
    assert (pending["missing"], pending["considered"], pending["rejected"]) == (1, 1, {"memory": 1})
    assert f"no_capacity/{'/'.join(ENV)}/{id}" in world.notices()
    world.node("n2")
    world.settle()
    assert len(world.replicas()) == 3
    assert not any(name.startswith("no_capacity") for name in world.notices())


def test_the_reasons_of_what_waits_are_brought_up_to_date(world: World) -> None:
    world.node("n1", memory=100)
    world.environment(1)
    world.release(1)
    id = world.deploy(1)
    world.settle()
    world.node("n2", cpu=50)
    world.settle()
    world.advance(61)
    pending = world.decision("deployment", (*ENV, id)).reasons["pending"]
    assert pending["rejected"] == {"memory": 1, "cpu": 1}


def test_w4_a_standing_want_of_capacity_is_told_once(world: World) -> None:
    world.node("n1", memory=100)
    world.environment(1)
    world.release(1)
    world.deploy(1)
    world.settle()
    before = world.sequence
    for _ in range(5):
        world.publish(subjects.NODE, ("n1",), world.state.tables[subjects.NODE][("n1",)].record)
        assert world.settle() == []
    assert world.sequence == before + 5


def test_scenario_2_lost_wake_up(world: World) -> None:
    """Capacity that is freed while the want of it is being written is not missed."""
    world.node("n1", memory=512)
    world.environment(2)
    world.release(1)
    world.deploy(1)
    world.cooperate()
    world.environment(3)
    world.step()
    from services.scheduler.decide import decide
    from services.scheduler.looks import settle

    plan = decide(world.state, world.now)
    world.node("n2")  # arrives before the pass is settled
    settle(world.state, plan, world.now)
    world.settle()
    assert len(world.replicas()) == 3


def test_irrelevant_changes_look_at_nothing(world: World) -> None:
    world.serving(replicas=2)
    world.publish(subjects.NODE, ("n3",), world.state.tables[subjects.NODE][("n3",)].record)
    assert [target for target in world.step().looks if target[0] == "environment"] == []


def test_the_first_two_instances_of_an_unknown_assignment_are_ignored(world: World) -> None:
    world.serving(replicas=1)
    world.report(("n9", "ghost-aaaaaaaaaa"), "healthy")
    assert world.settle() == []


def test_distinct_nodes_hold_within_the_set_and_let_a_deployment_share_nodes_with_the_old_one(world: World) -> None:
    world.nodes(3)
    world.environment(3)
    distinct = Placement(distinct_nodes=True)
    world.release(1, placement=distinct)
    world.deploy(1)
    world.cooperate()
    world.release(2, placement=distinct)
    world.deploy(2)
    world.cooperate()
    assert world.active().version == "2"
    assert sorted(node for node, _ in world.replicas(release=2)) == ["n1", "n2", "n3"]


def test_constraints_and_platforms_choose_the_nodes(world: World) -> None:
    world.node("n1", region="eu", platform="linux/arm64")
    world.node("n2", region="eu", platform="linux/amd64")
    world.node("n3", region="us", platform="linux/amd64")
    world.environment(2)
    world.release(1, **spec(constraints={"region": "eu"}))
    world.deploy(1)
    world.cooperate()
    assert sorted(node for node, _ in world.replicas()) == ["n1", "n2"]


def test_a_drain_ends_at_its_deadline_and_names_the_proxy_that_is_behind(world: World) -> None:
    world.serving(replicas=2)
    world.advance(20)
    world.proxies = {"edge": 1}
    world.beat()
    world.environment(1)
    world.settle()
    world.route()
    world.advance(29)
    assert len(world.replicas("drain")) == 1
    world.advance(1)
    (stopped,) = world.replicas("stop").values()
    assert stopped.reason == "drain deadline; proxies behind: edge"


def test_scenario_12_old_stopped_only_after_the_proxies_moved(world: World) -> None:
    world.serving(replicas=2)
    world.proxies = {"p1": 5, "p2": 5}
    world.advance(20)
    world.environment(1)
    world.settle()
    (key,) = world.replicas("drain")
    sequence = world.state.sequence_of(subjects.ASSIGNMENT, key)
    world.publish(subjects.ROUTED_ENVIRONMENT, ENV, Routed(drains={key[1]: sequence}, version=6))
    world.proxies["p1"] = 6
    world.advance(10)
    assert key in world.replicas("drain"), "p2 still serves version 5"
    world.proxies["p2"] = 6
    world.beat()
    world.settle()
    assert key in world.replicas("stop")


def test_a_proxy_that_vanished_is_waited_for_fifteen_seconds(world: World) -> None:
    world.serving(replicas=2)
    world.proxies = {"p1": 5}
    world.advance(20)
    world.proxies = {}
    world.environment(1)
    world.settle()
    world.route()
    world.advance(12)
    assert len(world.replicas("drain")) == 1
    world.advance(4)
    assert len(world.replicas("stop")) == 1


def test_deleting_an_environment_ends_its_replicas_and_then_forgets_it(world: World) -> None:
    world.serving(replicas=2)
    world.publish(subjects.ENVIRONMENT, ENV, None)
    world.settle()
    assert world.active().version == ""
    assert len(world.replicas("drain")) == 2
    world.advance(31)
    world.cooperate()
    assert world.state.tables[subjects.ASSIGNMENT] == {}
    for kind in (subjects.RELEASE, subjects.DEPLOY, subjects.DEPLOYMENT):
        assert world.state.tables[kind] == {}, kind.name
    assert world.active().request_floor != ""
    assert not [key for key in world.state.tables[subjects.DECISION] if key[1] == "environment"]
    assert list(world.notices()) == []


def test_a_deleted_environment_that_had_only_releases_is_forgotten_too(world: World) -> None:
    world.environment(1)
    world.release(1)
    world.publish(subjects.ENVIRONMENT, ENV, None)
    world.settle()
    assert world.state.tables[subjects.RELEASE] == {}
    assert not [key for key in world.state.tables[subjects.DECISION] if key[1] == "environment"]


def test_an_environment_that_was_never_there_tears_nothing_down(world: World) -> None:
    """Scenario 11: an empty or partial view. Only a tombstone tears down."""
    world.serving(replicas=2)
    del world.state.tables[subjects.ENVIRONMENT][ENV]
    world.state.mark(("environment", *ENV))
    assert world.settle() == []


def test_reservations_follow_the_instances(world: World) -> None:
    world.serving(replicas=1)
    (key,) = world.replicas()
    assert world.state.cluster.nodes[key[0]].replicas == 1
    world.report(key, "stopped")
    assert world.state.cluster.nodes[key[0]].replicas == 0
    instance = world.get(subjects.INSTANCE, key, Instance)
    assert instance.state == "stopped"
