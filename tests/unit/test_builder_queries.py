"""What the builder answers: who waits and for what, the workers of a pool, the command of a build."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.builder.queries import explain_query, pool_query, queue_query
from services.builder.worker.template import BUILDCTL, environment, fill, parse
from shared.errors import SteerError
from shared.model.build import BuildPool
from shared.model.build_worker import BuildOrder
from tests.unit.builder_world import POOL, World


def queue(world: World, **request: Any) -> list[tuple[int, str, str]]:
    found = queue_query(world.state, request, world.now)
    return [
        (entry["position"], entry["build"].split("/")[2].lstrip("0"), entry["waits_for"]) for entry in found["entries"]
    ]


def test_whoever_waits_is_told_the_place_and_what_for() -> None:
    world = World(pool=BuildPool(max_workers=2))
    for number, owner in enumerate("aab", 1):
        world.build(number, owner)
    world.settle()
    assert queue(world) == [
        (1, "1", "a new worker: 0 of at most 2 are leased"),
        (2, "3", "a new worker: 0 of at most 2 are leased"),
        (3, "2", "a new worker: 0 of at most 2 are leased"),
    ]
    world.worker(0, "pending")
    world.settle()
    assert queue(world)[0] == (1, "1", "a worker that is coming up: w-0 - Pending")
    world.worker(0)
    world.worker(1)
    world.settle()
    assert queue(world) == [(1, "2", "one of 2 workers to be free")]


def test_whoever_is_at_the_limit_is_told_so_and_stands_last() -> None:
    world = World(pool=BuildPool(max_workers=1, owner_limit=1))
    world.worker(0)
    for number, owner in enumerate("aab", 1):
        world.build(number, owner)
    world.settle()
    assert queue(world) == [
        (1, "3", "one of 1 workers to be free"),
        (2, "2", "an earlier one of a to end: 1 hold a worker, the limit is 1"),
    ]
    assert queue(world, owner="a") == [(2, "2", "an earlier one of a to end: 1 hold a worker, the limit is 1")]
    assert len(queue(world, limit=1)) == 1


def test_a_pool_that_does_not_exist_is_what_its_builds_wait_for() -> None:
    world = World(pool=None)
    world.build(1)
    world.settle()
    assert queue(world) == [(1, "1", "pool default, which does not exist")]
    with pytest.raises(SteerError, match="pool: other does not exist"):
        pool_query(world.state, {"pool": "other"}, world.now)


@pytest.mark.parametrize("request_", [{"pool": 7}, {"owner": 7}, {"limit": 0}, {"limit": True}, {"limit": 10**6}])
def test_a_question_that_is_wrong_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(SteerError):
        queue_query(World().state, request_, World().now)


def test_the_workers_of_a_pool_are_shown_with_their_states_and_builds() -> None:
    world = World()
    world.worker(0)
    world.worker(1, "pending")
    world.worker(3)
    key = world.build(1)
    world.settle()
    found = pool_query(world.state, {}, world.now)
    assert (found["pool"], found["wanted"], found["waiting"]) == (POOL, 4, 0)
    shown = [(each["worker"], each["state"], each["owner"], each["build"]) for each in found["workers"]]
    assert shown == [
        ("w-0", "Leased", "a", "/".join(key)),
        ("w-1", "Pending", "", ""),
        ("w-3", "Operational", "", ""),
    ]


def test_a_decision_says_why_a_build_runs_where_it_runs() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.settle()
    found = explain_query(world.state, {"about": "build", "key": "/".join(key)}, world.now)
    assert found["outcome"] == "attempt 1 on w-0: it is the first that is free"
    assert found["reasons"] == {"owner": "a", "owner_holds": 0, "free": 1}
    with pytest.raises(SteerError, match="nothing has been decided about build x"):
        explain_query(world.state, {"key": "x"}, world.now)


ORDER = BuildOrder(
    build="shop/web/1",
    attempt=1,
    token="t",
    worker_created_at=datetime(2030, 1, 1, tzinfo=UTC),
    source_url="https://sources/d",
    push_reference="r:5000/shop/web:1",
    build_args={"A": "1 2", "B": ""},
    platforms=("linux/amd64", "linux/arm64"),
)


def test_the_default_command_is_a_build_by_buildctl() -> None:
    argv = fill(parse(BUILDCTL), ORDER, "tcp://w-0:1234", Path("builds/t"))
    assert argv[:4] == ["buildctl", "--addr", "tcp://w-0:1234", "build"]
    assert "context=https://sources/d" in argv and "filename=Dockerfile" in argv
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--opt"][2:] == [
        "build-arg:A=1 2", "build-arg:B=", "platform=linux/amd64,linux/arm64",
    ]  # fmt: skip
    assert "type=image,name=r:5000/shop/web:1,push=true" in argv
    local = fill(parse(BUILDCTL), ORDER.model_copy(update={"local_load": True, "platforms": ()}), "", Path())
    assert "type=image,name=r:5000/shop/web:1,push=false" in local and not any("platform" in word for word in local)


def test_what_comes_from_a_request_is_a_word_of_its_own_and_no_template() -> None:
    tricky = ORDER.model_copy(update={"dockerfile": "{address}; rm -rf /", "build_args": {}})
    assert "filename={address}; rm -rf /" in fill(parse(BUILDCTL), tricky, "a", Path())


def test_a_command_gets_the_order_and_none_of_the_workers_keys() -> None:
    found = environment(ORDER, "", Path("d"), {"PATH": "p", "STEER_NATS_CREDS": "secret"})
    assert found["PATH"] == "p" and "STEER_NATS_CREDS" not in found
    assert found["STEER_BUILD_PUSH_REFERENCE"] == "r:5000/shop/web:1"
    assert found["STEER_BUILD_BUILD_ARGS"] == '{"A": "1 2", "B": ""}'
