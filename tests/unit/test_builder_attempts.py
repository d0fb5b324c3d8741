"""Builds whose worker dies, whose owner cancels them, or whose builder starts anew (W16)."""

from datetime import timedelta

import pytest

from shared import subjects
from shared.model.build import BuildPool
from tests.unit.builder_world import World


def small(**fields: object) -> World:
    return World(pool=BuildPool.model_validate({"max_workers": 2, **fields}))


def test_scenario_33_worker_dies() -> None:
    world = World()
    world.worker(0)
    world.worker(1)
    key = world.build(1)
    world.settle()
    first = world.order("w-0")
    world.advance(10)
    world.silenced.add("w-0")
    assert not any("lost" in outcome for outcome in world.advance(29))
    lost = world.advance(1)
    assert any("attempt 1 was lost on w-0: nothing was heard" in outcome for outcome in lost)
    assert world.now.second == 40, "the lease ends 30 s after the last heartbeat"
    assert world.running() == {"w-1": "1"} and world.status(key).attempt == 2
    assert world.order("w-1").token != first.token and not world.has_order("w-0")
    world.report("w-0", "succeeded", first)
    world.settle()
    assert world.status(key).state == "running", "a report with an old token is refused"
    assert "attempt 1 as succeeded, which was given up" in world.notices()[f"stale_report/{'/'.join(key)}"]
    world.report("w-1", "succeeded")
    world.settle()
    assert world.status(key).state == "succeeded"


@pytest.mark.parametrize("how", ["failed", "gone", "anew"])
def test_scenario_33_a_worker_that_is_known_to_have_died_is_not_waited_for(how: str) -> None:
    world = World()
    world.worker(0)
    world.worker(1)
    key = world.build(1)
    world.settle()
    world.now += timedelta(seconds=1)
    if how == "failed":
        world.change_worker("w-0", phase="failed")
    elif how == "gone":
        world.remove_worker("w-0")
    else:
        world.worker(0)
    world.settle()
    assert world.running() == {"w-1": "1"} and world.status(key).attempt == 2


def test_scenario_33_a_terminating_worker_is_never_leased() -> None:
    world = World()
    world.worker(0, deleting=True)
    world.build(1)
    world.settle()
    assert world.running() == {}


def test_scenario_33_scaling_down_takes_only_idle_workers() -> None:
    world = small(max_idle_seconds=60)
    for ordinal in (0, 1):
        world.worker(ordinal)
    world.build(1, "a")
    world.build(2, "b")
    world.settle()
    world.report("w-0", "succeeded")
    world.advance(120)
    assert world.scale.replicas == 2, "w-1 builds, so w-0 below it stays"
    world.report("w-1", "succeeded")
    world.advance(61)
    assert world.scale.replicas == 0


def test_a_build_that_loses_every_attempt_fails() -> None:
    world = World(pool=BuildPool(max_attempts=2))
    world.worker(0)
    key = world.build(1)
    world.settle()
    for attempt in (1, 2):
        assert world.status(key).attempt == attempt
        world.now += timedelta(seconds=1)
        world.worker(0)
        world.settle()
    assert world.status(key).state == "failed"
    assert "attempt 2 was lost on w-0" in world.status(key).error and "is left" in world.status(key).error


def test_a_lost_attempt_goes_before_all_who_wait() -> None:
    world = World(pool=BuildPool(max_workers=2))
    world.worker(0)
    for number, owner in ((1, "a"), (2, "b"), (3, "c")):
        world.build(number, owner)
    world.settle()
    world.remove_worker("w-0")
    world.worker(1)
    world.settle()
    assert world.running() == {"w-1": "1"}


def test_scenario_31_queue_stalls_after_cancel() -> None:
    world = World(pool=BuildPool(max_workers=1))
    world.worker(0)
    keys = [world.build(number, owner) for number, owner in ((1, "a"), (2, "b"), (3, "c"))]
    world.settle()
    world.cancel(keys[0])
    world.settle()
    assert world.order("w-0").cancel and world.status(keys[0]).stopping == "canceled"
    before = world.sequence
    world.cancel(keys[0])
    assert world.settle() == [] and world.sequence == before + 1, "the second cancel is a no-op"
    world.advance(29)
    assert world.running() == {"w-0": "1"}, "the worker lives, and its confirmation does not come"
    world.advance(1)
    assert world.status(keys[0]).state == "canceled" and world.running() == {"w-0": "2"}
    order = world.order("w-0")
    world.cancel(keys[1])
    world.settle()
    world.report("w-0", "canceled", order)
    world.settle()
    assert world.status(keys[1]).state == "canceled" and world.running() == {"w-0": "3"}


def test_a_cancel_holds_whatever_the_worker_reports_after_it() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.settle()
    world.cancel(key)
    world.settle()
    world.report("w-0", "succeeded")
    world.settle()
    assert world.status(key).state == "canceled", "it is not overwritten"


def test_a_cancel_works_in_every_state() -> None:
    world = small()
    waiting, done = world.build(1), world.build(2, canceled=True)
    world.settle()
    assert world.status(done).state == "canceled"
    world.cancel(waiting)
    world.settle()
    assert world.status(waiting).state == "canceled" and world.scale.replicas == 0
    world.worker(0)
    world.settle()
    assert world.running() == {}
    world.cancel(waiting)
    assert world.settle() == []


def test_a_canceled_build_whose_worker_dies_gets_no_further_attempt() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.settle()
    world.cancel(key)
    world.settle()
    world.remove_worker("w-0")
    world.settle()
    assert world.status(key).state == "canceled"


def test_a_build_whose_request_is_deleted_is_canceled_and_then_forgotten() -> None:
    """W13: a deleted build still took a worker."""
    world = World()
    world.worker(0)
    waits, runs = world.build(2, "b", cache_key="n"), world.build(1)
    world.publish(subjects.BUILD, waits, None)
    world.settle()
    assert waits not in {key for key, v in world.state.tables[subjects.BUILD_STATUS].items() if v.record}
    world.publish(subjects.BUILD, runs, None)
    world.settle()
    assert world.order("w-0").cancel
    world.report("w-0", "canceled")
    world.settle()
    assert world.state.deleted(subjects.BUILD_STATUS, runs)
    assert not [key for key in world.state.tables[subjects.DECISION] if runs[2] in key]


def test_a_build_that_hangs_ends_at_its_deadline() -> None:
    world = World(pool=BuildPool(build_timeout_seconds=100, lease_ttl_seconds=30))
    world.worker(0)
    key = world.build(1)
    world.settle()
    world.advance(100)
    assert world.status(key).stopping == "failed" and world.order("w-0").cancel
    world.advance(30)
    assert world.status(key).state == "failed" and "it took longer than 100 s" in world.status(key).error


def test_a_deadline_that_passed_while_nobody_led_is_acted_on() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.advance(3600 - 1)
    before, sequence = world.order("w-0"), world.sequence
    world.now += timedelta(seconds=100)  # nobody listens
    world.restart()
    world.advance(29)
    assert (world.order("w-0"), world.status(key).attempt) == (before.model_copy(update={"cancel": True}), 1)
    assert world.status(key).stopping == "failed", "its own deadline passed meanwhile, nothing else did"
    assert sequence < world.sequence


def test_scenario_34_controller_restart() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.advance(60)
    sequence = world.sequence
    world.now += timedelta(seconds=100)  # nobody listens
    world.restart()
    assert world.advance(120) == []
    assert world.sequence == sequence and world.status(key).state == "running"
    world.report("w-0", "succeeded")
    world.settle()
    assert world.status(key).state == "succeeded" and world.status(key).attempt == 1


def test_scenario_34_a_worker_that_died_meanwhile_is_noticed_one_ttl_after_the_restart() -> None:
    world = World()
    world.worker(0)
    key = world.build(1)
    world.advance(5)
    world.silenced.add("w-0")
    world.restart()
    world.advance(29)
    assert world.status(key).state == "running"
    world.advance(1)
    assert world.status(key).state == "queued" and world.status(key).lost_on == ("w-0",)
