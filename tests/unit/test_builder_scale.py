"""How many workers there should be, in the whole: ordinals that are contested or missing, and what is written when."""

from typing import Any

from shared import subjects
from shared.model.build import BuildPool
from tests.unit.builder_world import POOL, World

ID = f"{7:026d}"


def lease(world: World, owner: str = "a") -> Any:
    return world.command("lease", pool=POOL, owner=owner, wait_seconds=60, id=ID)


def test_an_expiry_that_is_no_time_is_a_state_and_the_next_lease_cures_it() -> None:
    world = World()
    world.worker(0)
    granted = lease(world)
    world.command("release", worker=granted["worker"], token=granted["token"])
    broken = world.lease("w-0").model_copy(update={"idle_until": "next tuesday"})
    world.publish(subjects.WORKER_LEASE, (POOL, "w-0"), broken)
    world.settle()
    assert world.scale.replicas == 0, "it is given up when nobody waits"
    assert lease(world)["worker"] == f"{POOL}/w-0"
    assert world.lease("w-0").idle_until is None


def test_a_worker_that_registers_again_under_another_ordinal_is_replaced_when_it_is_in_the_way() -> None:
    world = World()
    world.worker(0)
    world.worker(1)
    world.build(1, "a")
    world.build(2, "b")
    world.settle()
    world.report("w-0", "succeeded")
    world.settle()
    world.change_worker("w-0", ordinal=1)
    world.settle()
    lease(world)
    assert world.scale.replace == ("w-0",) and not world.lease("w-0").token


def test_a_gap_in_the_ordinals_is_filled_by_what_runs_the_workers() -> None:
    """W1 again, in the whole: the leased worker above a gap is never scaled away."""
    world = World()
    world.worker(0)
    world.worker(1)
    world.build(1, "a")
    world.build(2, "b")
    world.settle()
    world.report("w-0", "succeeded")
    world.settle()
    world.remove_worker("w-0")
    world.advance(1200)
    assert world.scale.replicas == 2 and world.running() == {"w-1": "2"}


def test_the_scale_is_written_when_it_changes_and_at_no_other_time() -> None:
    """W9, W10: it was written on every pass, and every 30 s there was one."""
    world = World(pool=BuildPool(min_workers=1))
    world.worker(0)
    world.settle()
    sequence = world.sequence
    world.advance(3600)
    assert world.sequence == sequence
