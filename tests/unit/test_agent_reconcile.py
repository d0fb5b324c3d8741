"""The table of `services.agent.reconcile`, row by row."""

from datetime import UTC, datetime, timedelta

import pytest

from services.agent.reconcile import Action, Wanted, World, reconcile
from shared.model.assignment import InstanceState

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN, DRAIN, STOP = Wanted("run"), Wanted("drain"), Wanted("stop")


def only(world: World) -> Action | None:
    actions = reconcile(world, NOW).actions
    assert len(actions) <= 1
    return actions[0] if actions else None


def kind(world: World) -> str | None:
    action = only(world)
    return None if action is None else action.kind


def test_what_should_run_and_was_never_reported_is_started() -> None:
    assert only(World(wanted={"a": RUN})) == Action("start", "a")


def test_what_was_reported_as_pending_only_is_started() -> None:
    assert kind(World(wanted={"a": RUN}, reported={"a": "pending"})) == "start"


@pytest.mark.parametrize("state", ["pulling", "starting", "running", "healthy", "unhealthy"])
def test_what_was_reported_as_alive_and_left_no_trace_is_failed_and_not_started_again(state: InstanceState) -> None:
    action = only(World(wanted={"a": RUN}, reported={"a": state}))
    assert action is not None
    assert (action.kind, action.state) == ("answer", "failed")
    assert state in action.message


@pytest.mark.parametrize("state", ["failed", "stopped"])
@pytest.mark.parametrize("wanted", [RUN, DRAIN, STOP])
def test_what_had_ended_stays_ended(state: InstanceState, wanted: Wanted) -> None:
    assert only(World(wanted={"a": wanted}, reported={"a": state})) == Action("answer", "a")
    assert only(World(wanted={"a": wanted}, replicas={"a": state})) == Action("answer", "a")


@pytest.mark.parametrize("wanted", [RUN, DRAIN])
@pytest.mark.parametrize("state", ["starting", "running", "healthy", "unhealthy"])
def test_what_runs_and_may_run_is_answered_with_its_state(wanted: Wanted, state: InstanceState) -> None:
    assert only(World(wanted={"a": wanted}, replicas={"a": state}, reported={"a": state})) == Action("answer", "a")


@pytest.mark.parametrize("wanted", [DRAIN, STOP])
def test_what_never_ran_here_is_answered_as_stopped(wanted: Wanted) -> None:
    action = only(World(wanted={"a": wanted}))
    assert action is not None
    assert (action.kind, action.state) == ("answer", "stopped")


def test_a_stop_of_what_runs_stops_it() -> None:
    assert only(World(wanted={"a": STOP}, replicas={"a": "healthy"})) == Action("stop", "a")


def test_a_stop_of_what_was_lost_is_answered_as_stopped() -> None:
    action = only(World(wanted={"a": STOP}, reported={"a": "healthy"}))
    assert action is not None
    assert (action.kind, action.state) == ("answer", "stopped")


def test_a_tombstone_stops_what_runs_and_then_forgets_it() -> None:
    assert kind(World(deleted={"a"}, replicas={"a": "running"})) == "stop"
    assert kind(World(deleted={"a"}, replicas={"a": "stopped"})) == "forget"
    assert kind(World(deleted={"a"})) == "forget"


def test_a_tombstone_stops_even_what_is_held() -> None:
    assert kind(World(deleted={"a"}, held={"a"}, replicas={"a": "running"})) == "stop"


def test_what_has_no_assignment_is_stopped_and_forgotten() -> None:
    assert kind(World(replicas={"a": "healthy"})) == "stop"
    assert kind(World(replicas={"a": "failed"})) == "forget"


def test_what_is_held_is_not_stopped_and_not_forgotten_for_lack_of_an_assignment() -> None:
    world = World(replicas={"a": "healthy", "b": "failed"}, held={"a", "b"})
    assert reconcile(world, NOW).actions == (Action("hold", "a"), Action("hold", "b"))


def test_what_is_held_is_stopped_by_name() -> None:
    assert kind(World(wanted={"a": STOP}, replicas={"a": "healthy"}, held={"a"})) == "stop"


def test_an_unreadable_assignment_leaves_its_replica_alone() -> None:
    assert only(World(unreadable={"a"}, replicas={"a": "healthy"})) is None


def test_an_earlier_version_rules_where_the_newest_is_unreadable() -> None:
    assert kind(World(wanted={"a": STOP}, unreadable={"a"}, replicas={"a": "healthy"})) == "stop"


def test_a_start_waits_for_not_before_and_says_when_to_look_again() -> None:
    soon, later = NOW + timedelta(seconds=5), NOW + timedelta(seconds=9)
    world = World(wanted={"a": Wanted("run", later), "b": Wanted("run", soon)})
    outcome = reconcile(world, NOW)
    assert [(action.kind, action.state) for action in outcome.actions] == [("answer", "pending")] * 2
    assert outcome.wake_at == soon
    after = reconcile(world, soon)
    assert [action.kind for action in after.actions] == ["answer", "start"]
    assert after.wake_at == later


def test_not_before_holds_no_stop_back_and_wakes_nobody_once_started() -> None:
    later = NOW + timedelta(seconds=9)
    stopped = reconcile(World(wanted={"a": Wanted("stop", later)}, replicas={"a": "running"}), NOW)
    assert [action.kind for action in stopped.actions] == ["stop"]
    running = reconcile(World(wanted={"a": Wanted("run", later)}, replicas={"a": "running"}), NOW)
    assert running.wake_at is None
