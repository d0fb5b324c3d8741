"""What a worker is good for, and how many there should be: the tables."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from services.builder.scale import determine_replicas
from services.builder.workers import (
    Facts,
    Observation,
    WorkerState,
    foreigners,
    leasable,
    observe_worker,
)
from shared.model.build import BuildPool
from shared.model.build_worker import BuildWorker, WorkerConditions, WorkerLease
from tests.unit.builder_world import EPOCH, READY

POOL = BuildPool(max_idle_seconds=300, ready_timeout_seconds=300, max_workers=100)
NEW, OLD = EPOCH - timedelta(seconds=1), EPOCH - timedelta(minutes=10)
LEASE = WorkerLease(owner="a", token="t", leased_at=NEW, expires_at=EPOCH + timedelta(seconds=30))
STARTING = WorkerConditions(scheduled=True, initialized=True)


def facts(phase: str, since: datetime = NEW, lease: WorkerLease | None = None, **fields: Any) -> Facts:
    record = BuildWorker.model_validate(
        {"ordinal": 0, "phase": phase, "created_at": since, "conditions": READY, **fields}
    )
    given = lease or WorkerLease()
    return Facts("w-0", record, since, given, given.expires_at)


def idle(until: datetime | str) -> WorkerLease:
    return WorkerLease(idle_until=until)


W = WorkerState
TABLE: dict[str, tuple[Facts, WorkerState]] = {
    "leased and running": (facts("running", lease=LEASE), W.LEASED),
    "leased and unready for a moment": (facts("running", lease=LEASE, conditions=STARTING), W.LEASED),
    "leased and failed (W6)": (facts("failed", lease=LEASE), W.UNUSABLE),
    "leased and ended (W6)": (facts("succeeded", lease=LEASE), W.UNUSABLE),
    "leased and being deleted (W6)": (facts("running", lease=LEASE, deleting=True), W.UNUSABLE),
    "leased, silent past its lease (W6)": (replace(facts("running", lease=LEASE), lease_ends=EPOCH), W.UNUSABLE),
    "leased, its ordinal in doubt": (replace(facts("running", lease=LEASE), foreign=True), W.LEASED),
    "claiming another's ordinal": (replace(facts("running"), foreign=True), W.UNMANAGED),
    "pending": (facts("pending"), W.PENDING),
    "pending for too long": (facts("pending", OLD), W.PENDING_EXPIRED),
    "pending for exactly as long as may be": (facts("pending", EPOCH - timedelta(minutes=5)), W.PENDING_EXPIRED),
    "pending and being deleted (W7)": (facts("pending", deleting=True), W.UNUSABLE),
    "ready, to be kept": (facts("running", OLD, idle(EPOCH + timedelta(minutes=1))), W.OPERATIONAL),
    "ready, to be kept up to now": (facts("running", OLD, idle(EPOCH)), W.OPERATIONAL),
    "ready, kept for long enough": (facts("running", OLD, idle(EPOCH - timedelta(seconds=1))), W.OPERATIONAL_EXPIRED),
    "ready, with an expiry that is no time": (facts("running", OLD, idle("soon")), W.OPERATIONAL_INVALID_EXPIRY),
    "ready, new and never leased": (facts("running"), W.OPERATIONAL),
    "ready, old and never leased": (facts("running", OLD), W.OPERATIONAL_EXPIRED),
    "ready and being deleted (W7)": (facts("running", deleting=True), W.UNUSABLE),
    "ready and silent": (replace(facts("running"), silent_at=EPOCH), W.UNUSABLE),
    "running, not ready yet": (facts("running", conditions=STARTING), W.STARTING),
    "running, not ready for too long": (facts("running", OLD, conditions=STARTING), W.STARTING_EXPIRED),
    "an old one that is unready for a moment (W8)": (
        replace(facts("running", OLD, conditions=STARTING), changed_at=NEW),
        W.STARTING,
    ),
    "failed": (facts("failed"), W.UNUSABLE),
    "ended": (facts("succeeded"), W.UNUSABLE),
    "unknown": (facts("unknown"), W.UNUSABLE),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_state_of_a_worker(case: str) -> None:
    seen, state = TABLE[case]
    assert observe_worker(seen, POOL, EPOCH).state is state


@pytest.mark.parametrize("missing", ["scheduled", "initialized", "containers_ready", "ready"])
def test_a_worker_without_one_condition_is_not_ready(missing: str) -> None:
    seen = facts("running", conditions=READY.model_copy(update={missing: False}))
    assert observe_worker(seen, POOL, EPOCH).state is W.STARTING


@pytest.mark.parametrize("case", TABLE)
def test_a_state_lasts_until_it_says_so(case: str) -> None:
    seen, state = TABLE[case]
    until = observe_worker(seen, POOL, EPOCH).until
    if until is not None:
        assert until > EPOCH
        assert observe_worker(seen, POOL, until - timedelta(microseconds=1)).state is state
        assert observe_worker(seen, POOL, until).state is not state


def test_the_ten_states_are_named_and_ordered_as_in_the_seed() -> None:
    assert [str(state) for state in WorkerState] == [
        "Unmanaged", "Leased", "Pending", "PendingExpired", "Starting", "StartingExpired",
        "Operational", "OperationalExpired", "OperationalInvalidExpiry", "Unusable",
    ]  # fmt: skip
    assert str(observe_worker(facts("running"), POOL, EPOCH)) == "w-0 - Operational"


def test_a_worker_that_registers_under_anothers_ordinal_is_not_ours_to_give() -> None:
    def worker(ordinal: int, since: datetime) -> BuildWorker:
        return BuildWorker(ordinal=ordinal, created_at=since)

    assert foreigners([("a", worker(0, OLD)), ("b", worker(0, NEW)), ("c", worker(1, NEW))]) == {"b"}
    assert foreigners([("b", worker(0, NEW)), ("a", worker(0, OLD))]) == {"b"}
    assert foreigners([("w-2", worker(3, NEW)), ("w-3", worker(3, OLD))]) == {"w-2"}
    assert foreigners([("w-0", worker(0, NEW)), ("w-1", worker(1, NEW))]) == set()


# -- how many ------------------------------------------------------------------------------------------------------------

LETTERS = {
    "U": facts("running"), "L": facts("running", lease=LEASE), "P": facts("pending"), "PE": facts("pending", OLD),
    "S": facts("running", conditions=STARTING), "SE": facts("running", OLD, conditions=STARTING),
    "O": facts("running"), "OE": facts("running", OLD), "OI": facts("running", OLD, idle("soon")),
    "X": facts("failed"), "D": facts("running", deleting=True),
}  # fmt: skip


def pool_of(letters: str, first: int = 0) -> list[Observation]:
    """Workers in the order of their ordinals; `.` = that ordinal has none."""
    found = []
    for ordinal, letter in enumerate(letters.split(), first):
        if letter == ".":
            continue
        seen = LETTERS[letter]
        record = seen.record.model_copy(update={"ordinal": ordinal})
        each = replace(seen, name=f"w-{ordinal}", record=record, foreign=letter == "U")
        found.append(observe_worker(each, POOL, EPOCH))
    return found


def scaled(letters: str, requests: int, **limits: int) -> tuple[int, tuple[str, ...]]:
    """As a pass does it: lease what can be leased, then scale for those who still wait."""
    observations = pool_of(letters)
    for each in leasable(observations, POOL)[:requests]:
        each.mark_leased()
        requests -= 1
    wanted = determine_replicas(observations, requests, **limits)
    return wanted.replicas, wanted.replace


ROWS: list[tuple[str, int, int]] = [
    ("", 0, 0), ("", 1, 1),
    ("U", 0, 0), ("U", 1, 0),
    ("L", 0, 1), ("L", 1, 2),
    ("P", 0, 1), ("P", 1, 1),
    ("PE", 0, 0), ("PE", 1, 0),
    ("S", 0, 1), ("S", 1, 1),
    ("SE", 0, 0),
    ("O", 0, 1), ("O", 1, 1),
    ("OE", 0, 0), ("OI", 0, 0),
    ("X", 0, 0), ("X", 1, 0),
    ("O L O", 0, 3),
    ("OE PE OE", 0, 0),
    ("L P P", 0, 3), ("L P P", 2, 3), ("L P P", 3, 4),
    ("L O O U OE PE", 0, 3), ("L O O U OE PE", 2, 3), ("L O O U OE PE", 3, 5),
    ("P X X PE", 1, 1),
    ("L OE", 0, 1),
]  # fmt: skip
"""The 29 rows of the reference that hold as they are."""

CHANGED = [("P X X P", 4, 4, 6, "W2: what is broken below the tail is replaced, and growth for the other two goes on")]
"""Letters, requests, what the reference gives, what we give, and why."""


@pytest.mark.parametrize(("letters", "requests", "replicas"), ROWS)
def test_a_row_of_the_reference_holds(letters: str, requests: int, replicas: int) -> None:
    assert scaled(letters, requests)[0] == replicas


@pytest.mark.parametrize(("letters", "requests", "before", "replicas", "reason"), CHANGED)
def test_a_row_of_the_reference_that_a_cure_has_changed(
    letters: str, requests: int, before: int, replicas: int, reason: str
) -> None:
    assert scaled(letters, requests)[0] == replicas != before, reason


def test_all_thirty_rows_are_here() -> None:
    assert len(ROWS) + len(CHANGED) == 30


def test_a_gap_in_the_ordinals_does_not_cost_the_leased_worker_above_it() -> None:
    """W1: by position in the list, pod 1 alone counted as one, and was the one to go."""
    assert scaled(". L", 0) == (2, ())
    assert scaled(". . . L", 0) == (4, ())


def test_an_ordinal_that_has_no_worker_yet_takes_one_of_those_who_wait() -> None:
    assert scaled(". L", 1) == (2, ())
    assert scaled(". . P", 3) == (3, ())
    assert scaled(". . P", 4) == (4, ())


def test_what_is_broken_below_a_lease_is_replaced_and_growth_goes_on() -> None:
    """W2: [U, L] with three requests stood at two for as long as the lease lived."""
    assert scaled("U L", 3) == (5, ("w-0",))
    assert scaled("X L", 0) == (2, ("w-0",))
    assert scaled("PE L SE L", 1) == (5, ("w-0", "w-2"))


def test_one_that_is_being_deleted_takes_nobody_and_needs_no_replacement() -> None:
    """W7: a terminating pod counted as starting, took a request, and held its position."""
    assert scaled("D", 1) == (0, ())
    assert scaled("D L", 1) == (3, ())


def test_an_idle_one_below_a_lease_stays_as_it_is() -> None:
    assert scaled("OE L", 0) == (2, ())


def test_what_is_broken_in_the_tail_is_trimmed_before_anything_grows() -> None:
    assert scaled("L X", 2) == (1, ())


@pytest.mark.parametrize(("letters", "requests", "replicas"), [("", 0, 2), ("", 1, 2), ("", 5, 3), ("L L", 4, 3)])
def test_the_limits_hold(letters: str, requests: int, replicas: int) -> None:
    """W9: there was no upper bound."""
    assert scaled(letters, requests, min_workers=2, max_workers=3)[0] == replicas


def test_a_lower_limit_takes_nobody_a_worker_away() -> None:
    assert scaled("O L O L", 0, max_workers=1)[0] == 4


def test_what_is_broken_and_may_not_be_trimmed_is_replaced() -> None:
    assert scaled("X X", 0, min_workers=2, max_workers=3) == (2, ("w-0", "w-1"))


def test_a_worker_above_the_limit_is_not_given_away() -> None:
    pool = POOL.model_copy(update={"max_workers": 1})
    assert [each.name for each in leasable(pool_of("O O"), pool)] == ["w-0"]
