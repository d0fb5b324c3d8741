"""Deployments: from a request to traffic, or to a reason why not. Scenario names are those of the reference."""

from datetime import timedelta
from typing import Any

import pytest

from shared import subjects
from shared.model.build import BuildStatus
from shared.model.deployment import Deployment, Scale
from shared.model.release import DeployRequest, Release
from shared.model.run import Healthcheck, RunSpec
from tests.unit.scheduler_world import ENV, World, request_id

BUILD = request_id(77)
FIRST, SECOND, THIRD = request_id(1), request_id(2), request_id(3)


@pytest.fixture
def world() -> World:
    world = World()
    world.serving(replicas=2)
    return world


def phases(world: World, id: str) -> list[str]:
    written = [
        change.record for _, change in world.log if (change.kind, change.key[3:]) == (subjects.DEPLOYMENT, (id,))
    ]
    assert isinstance(written[-1], Deployment)
    return [transition.phase for transition in written[-1].transitions]


def test_the_first_release_takes_the_same_phases_without_a_drain_window(world: World) -> None:
    assert phases(world, FIRST) == ["pending", "placing", "starting", "healthchecking", "promoting", "succeeded"]
    assert world.active().route_generation == 1


def test_happy_path_switches_traffic_and_keeps_the_old_set_warm_for_its_window(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.cooperate()
    assert world.deployment(SECOND).phase == "draining_old"
    assert (world.active().version, world.active().previous) == ("2", "1")
    assert len(world.replicas("run", release=1)) == 2, "the rollback target stays warm"
    world.advance(60)
    assert len(world.replicas("drain", release=1)) == 2
    world.cooperate()
    world.advance(15)
    world.cooperate()
    assert world.deployment(SECOND).phase == "succeeded"
    assert world.replicas("run", release=1) == {}
    assert f"deploy_succeeded/{'/'.join(ENV)}/{SECOND}" in world.notices()


def test_promotion_is_one_commit(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    world.all_healthy()
    plan = world.step()
    kinds = {change.kind for decision in plan.decisions for change in decision.changes}
    assert {subjects.ACTIVE, subjects.DEPLOYMENT, subjects.NOTICE} == kinds


def test_green_spreads_beside_blue(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    assert {node for node, _ in world.replicas(release=2)} >= {"n3"}, "n3 held no replica of release 1"


def test_a_failed_replica_fails_the_deployment_and_leaves_the_old_release_serving(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    key = next(iter(world.replicas(release=2)))
    world.report(key, "failed", exit_code=3, message="no such file")
    world.settle()
    record = world.deployment(SECOND)
    assert record.phase == "failed"
    assert record.error == f"replica {key[1]} on {key[0]}: failed with exit code 3: no such file"
    assert world.active().version == "1"
    assert len(world.replicas("run", release=1)) == 2
    assert world.replicas("run", release=2) == {}
    assert world.notices()[f"deploy_failed/{'/'.join(ENV)}/{SECOND}"].severity == "error"


def test_health_has_its_deadline_twice_the_grace_and_a_minute(world: World) -> None:
    world.release(2, run=RunSpec(healthcheck=Healthcheck(grace_period_seconds=30)))
    world.deploy(2)
    world.settle()
    for key in world.replicas(release=2):
        world.report(key, "running")
    world.settle()
    assert world.deployment(SECOND).phase == "healthchecking"
    world.advance(119)
    assert world.deployment(SECOND).phase == "healthchecking"
    world.advance(1)
    assert world.deployment(SECOND).phase == "failed"


def test_w6_a_lost_node_during_a_deployment_is_made_good_and_the_active_release_heals_too(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    for key in world.replicas(release=2):
        world.report(key, "running")
    world.silenced = {next(iter(world.replicas(release=2)))[0]}
    world.advance(31)
    (lost,) = world.silenced
    assert all(node != lost for node, _ in world.replicas("run", release=2))
    assert len(world.replicas("run", release=2)) == 2
    world.cooperate()
    assert world.active().version == "2"


def test_w7_a_small_cluster_may_use_a_node_twice(world: World) -> None:
    small = World()
    small.nodes(1)
    small.environment(3)
    small.release(1)
    small.deploy(1)
    small.cooperate()
    assert small.active().version == "1"
    assert len(small.replicas()) == 3


def test_what_cannot_be_placed_fails_at_its_deadline_with_the_count(world: World) -> None:
    small = World()
    small.node("n1", memory=300)
    small.environment(2)
    small.release(1)
    small.deploy(1)
    small.advance(599)
    assert small.deployment(FIRST).phase == "placing"
    small.advance(1)
    assert small.deployment(FIRST).phase == "failed"
    assert "1 of 2 replicas have no place" in small.deployment(FIRST).error
    assert not any(name.startswith("no_capacity") for name in small.notices()), "its episode is over"


def test_nothing_is_started_in_the_pass_that_finds_a_deployment_overdue(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    for key in world.replicas(release=2):
        world.report(key, "running")
    world.settle()
    world.silenced = {"n1", "n2", "n3"}
    world.advance(179)
    assert world.deployment(SECOND).phase == "healthchecking"
    world.node("n4")
    world.now += timedelta(seconds=1)
    world.settle()
    assert world.deployment(SECOND).phase == "failed"
    started = [change for _, change in world.log if change.kind is subjects.ASSIGNMENT and change.key[0] == "n4"]
    assert {change.record.release for change in started} == {"1"}, "the active release heals; release 2 is over"  # type: ignore[union-attr]


def test_starting_has_its_deadline(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.advance(601)
    assert world.deployment(SECOND).phase == "failed"
    assert "starting" in world.deployment(SECOND).error


def test_a_release_that_is_missing_is_waited_for_a_minute(world: World) -> None:
    world.deploy(2)
    world.advance(59)
    assert world.deployment(SECOND).phase == "pending"
    world.advance(1)
    assert world.deployment(SECOND).error == "release 2 does not exist"


def test_a_release_that_comes_late_is_deployed(world: World) -> None:
    world.deploy(2)
    world.settle()
    world.release(2)
    world.cooperate()
    assert world.active().version == "2"


def test_a_newer_request_supersedes_one_that_is_not_promoted(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    world.release(3)
    world.deploy(3)
    world.settle()
    assert world.deployment(SECOND).phase == "superseded"
    assert world.replicas("run", release=2) == {}
    world.cooperate()
    assert world.active().version == "3"


def test_a_newer_request_never_reaps_what_serves(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.cooperate()
    world.release(3)
    world.deploy(3)
    world.settle()
    assert world.deployment(SECOND).phase == "succeeded"
    assert len(world.replicas("run", release=2)) == 2
    assert world.active().version == "2"


def test_order_goes_by_sequence_not_by_id(world: World) -> None:
    world.release(2)
    world.release(3)
    world.deploy(3, id=3)
    world.deploy(2, id=2)
    world.cooperate()
    assert world.active().version == "2"
    assert world.deployment(THIRD).phase == "superseded"


def test_a_canceled_request_ends_its_deployment(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    world.publish(subjects.DEPLOY, (*ENV, SECOND), DeployRequest(version="2", canceled=True))
    world.settle()
    assert world.deployment(SECOND).phase == "canceled"
    assert world.replicas("run", release=2) == {}
    assert world.active().version == "1"


def test_canceling_after_the_promotion_changes_nothing(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.cooperate()
    world.publish(subjects.DEPLOY, (*ENV, SECOND), DeployRequest(version="2", canceled=True))
    world.cooperate()
    assert world.active().version == "2"
    assert world.deployment(SECOND).phase == "draining_old"


def test_a_promoted_deployment_that_was_canceled_is_done_when_the_next_one_is_promoted(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.cooperate()
    world.publish(subjects.DEPLOY, (*ENV, SECOND), DeployRequest(version="2", canceled=True))
    world.release(3)
    world.deploy(3)
    world.cooperate()
    assert world.active().version == "3"
    assert world.deployment(SECOND).phase == "succeeded"
    world.report(min(world.replicas("run", release=2)), "failed")
    world.advance(61)
    world.cooperate()
    world.advance(16)
    world.cooperate()
    assert world.deployment(THIRD).phase == "succeeded"
    assert world.replicas("run", release=2) == {}


def test_a_warm_rollback_promotes_the_old_replicas_at_once(world: World) -> None:
    old = set(world.replicas())
    world.release(2)
    world.deploy(2)
    world.cooperate()
    world.deploy(1, id=3, rollback=True)
    world.settle()
    assert phases(world, THIRD) == ["pending", "promoting", "draining_old"]
    assert world.active().version == "1"
    assert set(world.replicas("run", release=1)) == old
    world.advance(61)
    world.cooperate()
    world.advance(16)
    world.cooperate()
    assert world.deployment(THIRD).phase == "succeeded"
    assert world.replicas("run", release=2) == {}


def test_w27_a_cold_rollback_starts_a_set_of_its_own_and_keeps_it(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.cooperate()
    world.advance(61)
    world.cooperate()
    world.advance(31)
    world.cooperate()
    assert world.replicas("run", release=1) == {}
    world.deploy(1, id=3, rollback=True)
    world.settle()
    assert "placing" in phases(world, THIRD)
    fresh = set(world.replicas("run", release=1))
    world.cooperate()
    assert set(world.replicas("run", release=1)) == fresh


def test_the_same_release_can_be_deployed_again(world: World) -> None:
    before = set(world.replicas())
    world.deploy(1, id=2)
    world.cooperate()
    assert world.active().deployment == SECOND
    assert before.isdisjoint({key for key, record in world.replicas().items() if record.deployment == SECOND})


def test_what_to_go_back_to_is_another_release_than_the_one_that_serves(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.cooperate()
    world.deploy(2, id=3)
    world.cooperate()
    assert (world.active().version, world.active().previous) == ("2", "1")


def test_w26_a_deployment_starts_at_least_one_replica_and_scale_to_zero_begins_there() -> None:
    world = World()
    world.nodes(1)
    world.environment(0, most=3)
    world.release(1, scale_to_zero=True)
    world.deploy(1)
    world.cooperate()
    assert world.active().version == "1"
    assert world.get(subjects.SCALE, ENV, Scale).effective_replicas == 1
    assert len(world.replicas()) == 1


def building(world: World) -> None:
    world.publish(subjects.RELEASE, (*ENV, "2"), Release(build=BUILD))
    world.deploy(2)
    world.settle()
    assert world.deployment(SECOND).phase == "building"


def finish(world: World, **fields: Any) -> None:
    status = BuildStatus(pool="default", owner="team", queued_at=world.now, **fields)
    world.publish(subjects.BUILD_STATUS, (*ENV[:2], BUILD), status)
    world.settle()


def test_building_waits_for_the_build_and_takes_its_image_and_platforms(world: World) -> None:
    building(world)
    finish(world, state="running")
    assert world.deployment(SECOND).phase == "building"
    world.node("n4", platform="linux/arm64")
    finish(world, state="succeeded", image="registry/web@sha256:12", platforms=("linux/arm64",))
    world.cooperate()
    assert world.active().version == "2"
    assert (world.active().image, world.active().platforms) == ("registry/web@sha256:12", ("linux/arm64",))
    assert {record.run.image for record in world.replicas(release=2).values()} == {"registry/web@sha256:12"}
    assert {node for node, _ in world.replicas(release=2)} == {"n4"}


@pytest.mark.parametrize("state", ["failed", "canceled"])
def test_a_build_that_ends_without_an_image_ends_its_deployment_with_the_error(world: World, state: Any) -> None:
    building(world)
    finish(world, state=state, error="no Dockerfile")
    assert world.deployment(SECOND).error == f"build {BUILD} {state}: no Dockerfile"
    assert world.active().version == "1"


def test_building_has_its_deadline_of_an_hour(world: World) -> None:
    building(world)
    world.now += timedelta(seconds=3599)
    world.beat()
    world.settle()
    assert world.deployment(SECOND).phase == "building"
    world.advance(1)
    assert world.deployment(SECOND).phase == "failed"


def test_a_request_at_or_below_the_floor_never_starts_and_says_so(world: World) -> None:
    active = world.active().model_copy(update={"request_floor": SECOND})
    world.publish(subjects.ACTIVE, ENV, active)
    world.release(2)
    world.deploy(2)
    world.settle()
    assert (*ENV, SECOND) not in world.state.tables[subjects.DEPLOYMENT]
    assert f"deploy_refused/{'/'.join(ENV)}/{SECOND}" in world.notices()


def test_deleting_the_environment_ends_a_deployment_under_way(world: World) -> None:
    world.release(2)
    world.deploy(2)
    world.settle()
    world.publish(subjects.ENVIRONMENT, ENV, None)
    world.settle()
    assert world.deployment(SECOND).phase == "canceled"
    assert world.replicas("run") == {}


def test_the_explanation_of_a_placement_names_the_nodes_and_their_keys(world: World) -> None:
    world.release(2)
    world.deploy(2)
    plan = world.step()
    (decision,) = plan.decisions
    assert set(decision.reasons["placed"].values()) <= {"n1", "n2", "n3"}
    assert decision.reasons["placement"]["picks"][0]["node"] == "n3"
    assert decision.cause == world.state.sequence_of(subjects.DEPLOY, (*ENV, SECOND))
