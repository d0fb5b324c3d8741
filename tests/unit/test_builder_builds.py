"""Builds on their way: the queue, whose turn it is, what came of them, and what is forgotten."""

from datetime import timedelta

from services.builder.config import BuilderConfig
from shared import subjects
from shared.model.build import BuildPool, BuildRequest
from shared.model.build_worker import BuildOrder
from shared.model.release import Release
from tests.unit.builder_world import POOL, World, build_key


def small(**fields: object) -> World:
    return World(pool=BuildPool.model_validate({"max_workers": 2, **fields}))


# -- from queued to done ------------------------------------------------------------------------------------------------


def test_a_build_is_queued_then_given_to_a_worker_with_its_order() -> None:
    world = World()
    key = world.build(1, build_args={"A": "1"}, dockerfile="Containerfile", platforms=("linux/arm64",), cache_key="c")
    assert world.settle()[0] == "queued"
    assert world.status(key).state == "queued"
    world.worker(0)
    assert "attempt 1 on w-0: it is the first that is free" in world.settle()
    status, lease, order = world.status(key), world.lease("w-0"), world.order("w-0")
    assert (status.state, status.worker, status.attempt) == ("running", "w-0", 1)
    assert status.token == lease.token == order.token and len(status.token) == 16
    assert (lease.owner, lease.build, lease.address) == ("a", "/".join(key), "tcp://w-0:1234")
    assert order.source_url == "https://sources/sha256:1"
    assert order.push_reference == f"registry.example:5000/shop/web:{key[2]}"
    assert (order.build_args, order.dockerfile, order.platforms) == ({"A": "1"}, "Containerfile", ("linux/arm64",))


def test_a_success_is_an_image_pinned_by_its_digest_and_frees_the_worker() -> None:
    world = World()
    world.worker(0)
    key = world.build(1, platforms=("linux/arm64",))
    world.settle()
    world.report("w-0", "running")
    assert world.settle() == []
    world.report("w-0", "succeeded", platforms=("linux/amd64",))
    world.settle()
    status = world.status(key)
    assert (status.state, status.image) == ("succeeded", "registry.example:5000/shop/web@sha256:feed")
    assert status.platforms == ("linux/amd64",) and status.finished_at == world.now and status.deadline is None
    assert not world.has_order("w-0")
    assert world.lease("w-0").token == "" and world.lease("w-0").idle_until == world.now + timedelta(seconds=600)


def test_a_worker_is_given_on_in_the_pass_in_which_its_build_ends_whatever_else_was_marked() -> None:
    """As a state that was just loaded would, which looks at everything: so it can be decided again."""
    world = World()
    world.worker(0)
    first, second = world.build(1), world.build(2)
    world.settle()
    world.report("w-0", "succeeded")
    world.step()
    assert (world.status(first).state, world.status(second).state) == ("succeeded", "running")
    assert world.lease("w-0").build == "/".join(second)


def test_platforms_that_are_not_reported_are_those_that_were_asked_for() -> None:
    world = World()
    world.worker(0)
    key = world.build(1, platforms=("linux/arm64",))
    world.settle()
    world.report("w-0", "succeeded")
    world.settle()
    assert world.status(key).platforms == ("linux/arm64",)


def test_an_image_that_is_loaded_in_place_goes_by_its_tag() -> None:
    world = World(config=BuilderConfig(registry_address="r", local_load=True))
    world.worker(0)
    key = world.build(1)
    world.settle()
    assert world.order("w-0").local_load
    world.report("w-0", "succeeded", image_digest="")
    world.settle()
    assert world.status(key).image == f"r/shop/web:{key[2]}"


def test_a_success_without_a_digest_is_a_failure() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.settle()
    world.report("w-0", "succeeded", image_digest="")
    world.settle()
    assert world.status(key).state == "failed" and "digest" in world.status(key).error


def test_a_failure_that_the_worker_reports_is_final() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.settle()
    world.report("w-0", "failed", error="exited with code 3")
    world.settle()
    assert (world.status(key).state, world.status(key).error) == ("failed", "exited with code 3")
    assert world.running() == {}


def test_a_build_of_a_pool_that_does_not_exist_waits_with_a_notice_and_fails_at_its_deadline() -> None:
    world = World(pool=None)
    key = world.build(1)
    world.settle()
    assert world.status(key).state == "queued"
    assert "pool default, which does not exist" in world.notices()[f"no_pool/{'/'.join(key)}"]
    world.publish(subjects.BUILD_POOL, (POOL,), BuildPool())
    world.settle()
    assert world.notices() == {} and world.scale.replicas == 1
    other = World(pool=None)
    key = other.build(1)
    other.advance(86_400)
    assert other.status(key).state == "failed" and "no worker was free" in other.status(key).error


def test_people_are_told_when_builds_wait_and_no_worker_comes_up() -> None:
    world = small(ready_timeout_seconds=60)
    world.build(1)
    world.advance(59)
    assert world.notices() == {}
    world.advance(1)
    assert "1 wait for a worker of pool default" in world.notices()["no_worker/default"]
    world.worker(0)
    world.settle()
    assert world.notices() == {}


# -- whose turn ---------------------------------------------------------------------------------------------------------


def test_scenario_35_fairness() -> None:
    world = small()
    for number, owner in enumerate(("a", "a", "a", "b"), 1):
        world.build(number, owner)
    world.settle()
    world.worker(0)
    world.worker(1)
    world.settle()
    assert world.running() == {"w-0": "1", "w-1": "4"}
    for name in ("w-0", "w-1"):
        world.report(name, "succeeded")
    world.settle()
    assert world.running() == {"w-0": "2", "w-1": "3"}


def test_scenario_35_with_a_limit_an_owner_waits_though_a_worker_is_free() -> None:
    world = small(owner_limit=1)
    for number, owner in enumerate(("a", "a", "b"), 1):
        world.build(number, owner)
    world.worker(0)
    world.worker(1)
    world.settle()
    assert world.running() == {"w-0": "1", "w-1": "3"}
    world.report("w-1", "succeeded")
    world.settle()
    assert world.running() == {"w-0": "1"}, "the limit is hard"
    world.report("w-0", "succeeded")
    world.settle()
    assert world.running() == {"w-0": "2"}


def test_owners_take_turns_on_a_single_worker() -> None:
    world = World(pool=BuildPool(max_workers=1))
    for number, owner in enumerate("aaabbc", 1):
        world.build(number, owner)
    world.worker(0)
    order = []
    for _ in range(6):
        world.settle()
        order.append(world.status(build_key(int(world.running()["w-0"]))).owner)
        world.report("w-0", "succeeded")
    assert "".join(order) == "abcaba"


def test_an_instance_that_takes_over_goes_on_with_the_same_turn() -> None:
    for restarts in (False, True):
        world = World(pool=BuildPool(max_workers=1))
        for number, owner in enumerate("aaabbc", 1):
            world.build(number, owner)
        world.worker(0)
        order = []
        for _ in range(6):
            world.settle()
            order.append(world.status(build_key(int(world.running()["w-0"]))).owner)
            world.report("w-0", "succeeded")
            if restarts:
                world.restart()
        assert "".join(order) == "abcaba", restarts


def test_a_build_goes_to_the_free_worker_that_built_its_cache_key_last() -> None:
    world = World()
    world.worker(0)
    world.worker(1)
    world.build(1, cache_key="x")
    world.build(2, cache_key="y")
    world.settle()
    for name in ("w-0", "w-1"):
        world.report(name, "succeeded")
    world.settle()
    world.build(3, cache_key="y")
    assert "attempt 1 on w-1: it built y last" in world.settle()
    world.build(4, cache_key="y")
    world.settle()
    assert world.running() == {"w-0": "4", "w-1": "3"}, "it never waits for it"


# -- retention ----------------------------------------------------------------------------------------------------------


def test_the_last_twenty_builds_of_an_app_stay_and_requests_go_with_their_statuses() -> None:
    world = World()
    world.worker(0)
    used = world.build(1)
    release = Release(image="", build=used[2])
    world.publish(subjects.RELEASE, ("shop", "web", "production", "1"), release)
    for number in range(2, 26):
        world.build(number)
    other = world.build(99, app="api")
    for _ in range(26):
        world.settle()
        world.report("w-0", "succeeded")
    world.settle()
    there = [key for key, v in world.state.tables[subjects.BUILD_STATUS].items() if v.record is not None]
    requests = [key for key, v in world.state.tables[subjects.BUILD].items() if v.record is not None]
    assert sorted(there) == sorted(requests)
    assert len([key for key in there if key[1] == "web"]) == 21, "the one that a release names stays, too"
    assert used in there and other in there and build_key(6) in there and build_key(5) not in there
    assert not [key for key in world.state.tables[subjects.DECISION] if build_key(2)[2] in key]


def test_a_request_that_is_published_again_after_its_build_was_trimmed_starts_nothing() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    request = world.get(subjects.BUILD, key, BuildRequest)
    world.settle()
    world.report("w-0", "succeeded")
    world.settle()
    world.publish(subjects.BUILD, key, None)
    world.settle()
    world.publish(subjects.BUILD, key, request)
    assert world.settle() == ["a build that was trimmed never starts again"]
    assert world.state.deleted(subjects.BUILD, key) and world.running() == {}


def test_what_is_left_of_a_worker_that_is_gone_is_deleted() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.settle()
    world.report("w-0", "succeeded")
    world.settle()
    world.remove_worker("w-0")
    world.settle()
    assert (POOL, "w-0") not in world.state.tables[subjects.WORKER_LEASE]
    assert (POOL, "w-0", key[2]) not in world.state.tables[subjects.BUILD_REPORT]
    assert world.state.get(subjects.BUILD_ORDER, (POOL, "w-0"), BuildOrder) is None


def test_more_than_fits_into_one_commit_is_done_in_several() -> None:
    world = World(pool=BuildPool(max_workers=600))
    for ordinal in range(400):
        world.worker(ordinal)
    for number in range(1, 601):
        world.build(number, owner=f"o{number % 7}")
    world.settle()
    assert len(world.running()) == 400
    assert world.scale.replicas == 600
    for ordinal in range(400):
        world.remove_worker(f"w-{ordinal}")
    world.settle()
    assert world.running() == {} and len(world.state.indexes.line(POOL)) == 600


def test_a_late_report_of_an_attempt_counts_for_nothing_on_the_same_worker_too() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.settle()
    first = world.order("w-0")
    world.now += timedelta(seconds=1)
    world.worker(0)
    world.settle()
    assert world.running() == {"w-0": "1"} and world.status(key).attempt == 2
    world.report("w-0", "succeeded", first)
    world.settle()
    assert world.status(key).state == "running"
    assert f"stale_report/{'/'.join(key)}" in world.notices()
