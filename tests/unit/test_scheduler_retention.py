"""What is kept of an environment's past. Scenario names are those of the reference."""

from datetime import timedelta

import pytest

from services.scheduler.retention import keep_set
from shared import subjects
from shared.model.build import BuildStatus
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.image_sweep import ImageSweep, ImageSwept
from shared.model.release import Release
from tests.unit.scheduler_world import ENV, World, request_id


def versions(world: World) -> list[int]:
    return sorted(int(key[3]) for key in world.state.tables[subjects.RELEASE] if key[:3] == ENV)


def deployments(world: World) -> list[int]:
    return sorted(int(key[3]) for key in world.state.tables[subjects.DEPLOYMENT])


def deploy_many(world: World, numbers: range) -> None:
    for number in numbers:
        world.release(number)
        world.deploy(number)
        world.cooperate(2)
        world.advance(2)
        world.cooperate(2)


@pytest.fixture
def world() -> World:
    world = World()
    world.nodes(2)
    world.environment(1, drain_window_seconds=1)
    return world


def test_keeps_recent_active_and_referenced(world: World) -> None:
    deploy_many(world, range(1, 2))
    for number in range(2, 16):
        world.release(number)
    world.settle()
    assert versions(world) == [1, *range(6, 16)], "1 serves, the last ten stay"


def test_keeps_the_release_before_the_one_that_serves() -> None:
    kept = keep_set(list(range(1, 31)), ActiveRelease(version="12"), [])
    assert kept == {11, 12, *range(21, 31)}
    assert keep_set([1, 2], ActiveRelease(version="2", previous="1"), []) == {1, 2}
    assert keep_set([], ActiveRelease(), []) == set()


def test_a_deployment_under_way_keeps_its_release_and_the_one_before() -> None:
    record = Deployment(phase="placing", version="3", previous="2", requested_at_sequence=1, phase_since=World().now)
    assert keep_set(list(range(1, 31)), ActiveRelease(version="30"), [record]) == {2, 3, 29, *range(21, 31)}


def test_the_last_twenty_deployments_stay_and_older_ones_go_with_their_requests(world: World) -> None:
    deploy_many(world, range(1, 25))
    assert deployments(world) == list(range(4, 25)), "twenty that are done, and the one that serves"
    assert sorted(int(key[3]) for key in world.state.tables[subjects.DEPLOY]) == deployments(world)
    assert world.active().request_floor == request_id(3)
    assert not [key for key in world.state.tables[subjects.DECISION] if key[-1] == request_id(1)]
    assert not [name for name in world.notices() if name.endswith(request_id(1))]


def test_a_request_and_what_was_derived_from_it_go_in_one_commit_with_the_version_that_was_judged(world: World) -> None:
    deploy_many(world, range(1, 22))
    judged = world.state.sequence_of(subjects.DEPLOY, (*ENV, request_id(1)))
    world.release(22)
    world.deploy(22)
    world.cooperate(0)
    decision = None
    while decision is None:
        world.all_healthy()
        world.route()
        world.agents_stop()
        world.now += timedelta(seconds=1)
        world.beat()
        plan = world.step()
        decision = next((d for d in plan.decisions if "deployments" in d.reasons), None)
        assert world.sequence < 2000
    written = {change.kind: change for change in decision.changes if change.kind is not subjects.NOTICE}
    assert {subjects.DEPLOY, subjects.DEPLOYMENT, subjects.ACTIVE} <= written.keys()
    assert written[subjects.DEPLOY].expected == judged


def test_a_request_that_is_published_again_long_after_it_was_trimmed_never_starts(world: World) -> None:
    deploy_many(world, range(1, 25))
    serving = world.active().version
    world.deploy(1)
    world.cooperate()
    assert world.active().version == serving
    assert f"deploy_refused/{'/'.join(ENV)}/{request_id(1)}" in world.notices()


def test_w18_an_image_that_no_kept_release_needs_is_swept_under_the_tag_it_was_pushed_with(world: World) -> None:
    build = request_id(500)
    world.publish(subjects.RELEASE, (*ENV, "1"), Release(build=build))
    deploy_many(world, range(2, 14))
    sweep = world.get(subjects.IMAGE_SWEEP, (*ENV[:2], build), ImageSweep)
    assert sweep.release == "shop/web/production/1"
    world.publish(subjects.IMAGE_SWEPT, (*ENV[:2], build), ImageSwept(state="failed", error="away", at=world.now))
    world.settle()
    assert (*ENV[:2], build) in world.state.tables[subjects.IMAGE_SWEEP]
    world.publish(subjects.IMAGE_SWEPT, (*ENV[:2], build), ImageSwept(state="done", at=world.now))
    world.settle()
    assert (*ENV[:2], build) not in world.state.tables[subjects.IMAGE_SWEEP]


def publish_built(world: World, build: str, environment: str, version: int = 1, digest: str = "") -> None:
    key = ("shop", "web", environment, str(version))
    world.publish(subjects.RELEASE, key, Release(build=build))
    if digest:
        image = f"registry.example.com/shop/web@{digest}"
        status = BuildStatus(state="succeeded", pool="main", owner="shop", image=image, queued_at=world.now)
        world.publish(subjects.BUILD_STATUS, ("shop", "web", build), status)


def test_a_build_that_another_environment_of_the_app_still_has_is_not_swept_until_that_one_trims_it_too(
    world: World,
) -> None:
    build = request_id(500)
    publish_built(world, build, "production")
    publish_built(world, build, "staging")
    deploy_many(world, range(2, 14))
    assert 1 not in versions(world)
    assert (*ENV[:2], build) not in world.state.tables[subjects.IMAGE_SWEEP]


def test_the_digests_of_all_releases_of_the_app_are_named_so_that_they_stay(world: World) -> None:
    old, same, other = request_id(500), request_id(501), request_id(502)
    publish_built(world, old, "production", 1, "sha256:1")
    publish_built(world, same, "production", 12, "sha256:12")
    publish_built(world, other, "staging", 1, "sha256:33")
    deploy_many(world, range(2, 12))
    deploy_many(world, range(13, 15))
    sweep = world.get(subjects.IMAGE_SWEEP, (*ENV[:2], old), ImageSweep)
    assert sweep.image == "registry.example.com/shop/web@sha256:1"
    assert sweep.keep_digests == ("sha256:12", "sha256:33")


def test_a_build_that_a_kept_release_shares_is_not_swept(world: World) -> None:
    build = request_id(500)
    world.publish(subjects.RELEASE, (*ENV, "1"), Release(build=build))
    deploy_many(world, range(2, 11))
    world.publish(subjects.RELEASE, (*ENV, "13"), Release(build=build))
    deploy_many(world, range(14, 18))
    assert 1 not in versions(world)
    assert (*ENV[:2], build) not in world.state.tables[subjects.IMAGE_SWEEP]
