"""What holds of `services.agent.reconcile` in every world, and along every history of one assignment."""

from datetime import UTC, datetime, timedelta
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from services.agent.reconcile import ENDED, Outcome, Wanted, World, reconcile
from shared.model.assignment import Desired, InstanceState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = st.sampled_from(["a", "b", "c", "d"])
STATES = st.sampled_from(get_args(InstanceState))
OWN_STATES = STATES.filter(lambda state: state not in {"pending", "pulling"})
TIMES = st.none() | st.integers(-5, 5).map(lambda seconds: NOW + timedelta(seconds=seconds))
WANTED = st.builds(Wanted, st.sampled_from(get_args(Desired)), TIMES)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    wanted = draw(st.dictionaries(NAMES, WANTED))
    return World(
        wanted=wanted,
        deleted=draw(st.frozensets(NAMES)) - wanted.keys(),
        unreadable=draw(st.frozensets(NAMES)),
        replicas=draw(st.dictionaries(NAMES, OWN_STATES)),
        reported=draw(st.dictionaries(NAMES, STATES)),
        held=draw(st.frozensets(NAMES)),
    )


def by_name(outcome: Outcome) -> dict[str, str]:
    names = [action.assignment for action in outcome.actions]
    assert len(names) == len(set(names)), "at most one action for each"
    return {action.assignment: action.kind for action in outcome.actions}


@given(worlds())
def test_every_assignment_is_started_stopped_or_answered(world: World) -> None:
    actions = by_name(reconcile(world, NOW))
    assert all(actions[name] in {"start", "stop", "answer"} for name in world.wanted)


@given(worlds())
def test_only_what_should_run_and_never_did_is_started(world: World) -> None:
    for name, kind in by_name(reconcile(world, NOW)).items():
        if kind == "start":
            assert world.wanted[name].desired == "run"
            assert name not in world.replicas
            assert world.reported.get(name, "pending") == "pending"


@given(worlds())
def test_only_what_the_log_names_or_may_leave_out_is_stopped(world: World) -> None:
    for name, kind in by_name(reconcile(world, NOW)).items():
        if kind == "stop":
            assert world.replicas[name] not in ENDED
            wanted = world.wanted.get(name)
            named = name in world.deleted or (wanted is not None and wanted.desired == "stop")
            assert named or (wanted is None and name not in world.held)


@given(worlds())
def test_nothing_that_runs_is_forgotten(world: World) -> None:
    for name, kind in by_name(reconcile(world, NOW)).items():
        if kind == "forget":
            assert world.replicas.get(name, "stopped") in ENDED
            assert name not in world.wanted


@given(worlds())
def test_a_wait_ends_with_a_start(world: World) -> None:
    outcome = reconcile(world, NOW)
    if outcome.wake_at is not None:
        assert outcome.wake_at > NOW
        later = by_name(reconcile(world, outcome.wake_at))
        starts = [name for name, kind in later.items() if kind == "start"]
        assert any(world.wanted[name].not_before == outcome.wake_at for name in starts)
