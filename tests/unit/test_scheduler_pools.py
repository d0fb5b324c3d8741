"""Pools as workloads: one worker, replaced when its signature changes."""

from typing import Any

from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.pool import Pool
from shared.model.route import Routed
from shared.model.run import Resources, RunSpec
from shared.subjects import Key
from tests.unit.scheduler_world import World

KEY: Key = ("acme", "python", "shared", "0123456789abcdef")


def pool(world: World, members: tuple[str, ...], signature: str, desired: int = 1) -> None:
    world.publish(
        subjects.POOL,
        KEY,
        Pool(
            members=members,
            limit=16,
            signature=signature * 64,
            run=RunSpec(command=("host",), env={"STEER_MEMBERS": ",".join(members)}),
            resources=Resources(cpu_millis=100, memory_mb=128),
            desired=desired,
            changed_at=world.now,
            settles_by=world.now,
        ),
    )
    world.settle()


def ready(world: World, members: dict[str, str], **fields: Any) -> None:
    for key in world.replicas("run"):
        instance = world.state.get(subjects.INSTANCE, key, Instance)
        if instance is None or instance.members != members:
            world.report(key, "healthy", healthy_since=world.now, members=members, **fields)
    world.settle()


def workers(world: World, desired: str = "run") -> dict[Key, Assignment]:
    return world.replicas(desired)


def world_with_pool() -> World:
    world = World()
    world.nodes(2)
    world.settle()
    pool(world, ("a", "b"), "1")
    ready(world, {"a": "ready", "b": "ready"})
    world.advance(20)
    return world


def test_a_pool_is_placed_like_any_workload() -> None:
    world = world_with_pool()
    ((_, record),) = workers(world).items()
    assert (record.workload.kind, record.workload.key) == ("pool", "/".join(KEY))
    assert record.deployment == "1" * 16
    assert next(iter(workers(world)))[1].startswith("python-")


def test_a_changed_signature_starts_another_and_drains_the_old_when_its_members_are_ready() -> None:
    world = world_with_pool()
    (old,) = workers(world)
    pool(world, ("a", "b", "c"), "2")
    assert len(workers(world)) == 2
    (new,) = set(workers(world)) - {old}
    world.report(new, "healthy", healthy_since=world.now, members={"a": "ready", "b": "loading"})
    world.settle()
    assert old in workers(world), "b is not ready in the new worker"
    world.report(new, "healthy", healthy_since=world.now, members={"a": "ready", "b": "ready"})
    world.settle()
    assert old in workers(world, "drain")


def test_a_member_that_never_becomes_ready_holds_the_old_worker_for_a_minute() -> None:
    world = world_with_pool()
    (old,) = workers(world)
    pool(world, ("a", "b"), "2")
    (new,) = set(workers(world)) - {old}
    world.report(new, "healthy", healthy_since=world.now, members={"a": "ready", "b": "failed"})
    world.advance(59)
    assert old in workers(world)
    world.advance(1)
    assert old not in workers(world)


def test_a_member_that_the_old_worker_did_not_serve_either_is_not_waited_for() -> None:
    world = world_with_pool()
    ready(world, {"a": "ready", "b": "failed"})
    (old,) = workers(world)
    pool(world, ("a", "b"), "2")
    (new,) = set(workers(world)) - {old}
    world.report(new, "healthy", healthy_since=world.now, members={"a": "ready", "b": "failed"})
    world.settle()
    assert old in workers(world, "drain")


def test_a_drained_worker_stops_when_the_routes_say_so() -> None:
    world = world_with_pool()
    pool(world, (), "3", desired=0)
    ((key, _),) = workers(world, "drain").items()
    sequence = world.state.sequence_of(subjects.ASSIGNMENT, key)
    world.publish(subjects.ROUTED_POOL, KEY, Routed(drains={key[1]: sequence}, version=3))
    world.settle()
    assert key in workers(world, "stop")


def test_a_worker_that_failed_is_replaced_and_a_deleted_pool_is_ended_and_forgotten() -> None:
    world = world_with_pool()
    (key,) = workers(world)
    world.report(key, "failed", exit_code=1)
    world.settle()
    assert len(workers(world)) == 1
    assert key not in workers(world)
    world.publish(subjects.POOL, KEY, None)
    world.settle()
    world.advance(31)
    world.agents_stop()
    world.settle()
    assert world.state.tables[subjects.ASSIGNMENT] == {}
    assert not [key for key in world.state.tables[subjects.DECISION] if key[1] == "pool"]


def test_a_pool_that_has_no_place_says_why() -> None:
    world = World()
    world.node("n1", memory=100)
    world.settle()
    pool(world, ("a",), "1")
    assert world.decision("pool", KEY).reasons["pending"]["rejected"] == {"memory": 1}
    world.node("n2")
    world.settle()
    assert len(workers(world)) == 1
