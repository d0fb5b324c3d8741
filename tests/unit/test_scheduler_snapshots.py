"""Snapshots: one run a slot, in the schedule's zone; retries, time-outs, what is kept. Scenario names: reference."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from services.scheduler.snapshots import keep_reasons, latest_slot, next_slot
from shared import subjects
from shared.model.snapshot import SnapshotOrder, SnapshotPrune, SnapshotReport
from shared.model.volume import SnapshotPolicy, Volume, VolumeStatus
from tests.unit.scheduler_world import ENV, World

VOLUME = (*ENV, "data")


def moment(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


class Snapshots(World):
    """A pinned volume on n1; the agent answers when a test says so."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.publish(subjects.VOLUME_STATUS, VOLUME, VolumeStatus(node="n1"))

    def policy(self, **fields: Any) -> None:
        self.publish(subjects.VOLUME, VOLUME, Volume(snapshot_policy=SnapshotPolicy(**fields)))
        self.settle()

    def orders(self, *states: str) -> list[str]:
        found = []
        for key, version in sorted(self.state.tables[subjects.SNAPSHOT_ORDER].items()):
            assert isinstance(version.record, SnapshotOrder)
            if not states or version.record.state in states:
                found.append(key[-1])
        return found

    def answer(self, state: Any = "complete", **fields: Any) -> None:
        """The agent's report of every order that runs, and of the prunes."""
        for id in self.orders("running"):
            report = SnapshotReport(state=state, at=self.now, **fields)
            self.publish(subjects.SNAPSHOT_REPORT, ("n1", *VOLUME, id), report)
        prune = self.state.get(subjects.SNAPSHOT_PRUNE, ("n1", *VOLUME), SnapshotPrune)
        for id in prune.ids if prune else ():
            self.publish(subjects.SNAPSHOT_REPORT, ("n1", *VOLUME, id), None)
        self.settle()

    def at(self, *when: int) -> None:
        """Time goes on to a moment, wake-up by wake-up."""
        end = moment(*when)
        self.settle()
        while self.wake_at is not None and self.wake_at <= end:
            self.now = self.wake_at
            self.settle()
        self.now = end
        self.settle()


def test_one_run_for_each_due_slot() -> None:
    world = Snapshots()
    world.policy(schedule="0 * * * *")
    assert world.orders() == []
    world.at(2030, 1, 1, 1, 0)
    assert world.orders() == ["s-20300101t010000z"]
    world.answer()
    world.at(2030, 1, 1, 1, 59)
    assert len(world.orders()) == 1
    world.at(2030, 1, 1, 2, 0)
    assert world.orders() == ["s-20300101t010000z", "s-20300101t020000z"]


def test_without_a_schedule_nothing_runs_and_a_request_runs_once() -> None:
    world = Snapshots()
    request = "01kb8v3w2xq4r5s6t7v8w9x0yz"
    world.publish(subjects.VOLUME, VOLUME, Volume(snapshot_request=request))
    world.settle()
    assert world.orders() == [f"r-{request}"]
    world.answer()
    world.at(2030, 1, 5)
    assert world.orders() == [f"r-{request}"]


def test_scenario_37_fires_when_it_should() -> None:
    world = Snapshots(now=datetime(2030, 1, 1, 7, 55, tzinfo=UTC))
    world.policy(schedule="@midnight")
    world.at(2030, 1, 1, 23, 59)
    assert world.orders() == []
    world.at(2030, 1, 2, 0, 0)
    assert world.orders() == ["s-20300102t000000z"]


def test_scenario_37_a_slot_within_a_pause_is_told_of_once_and_not_made_up_for() -> None:
    world = Snapshots(now=datetime(2030, 1, 1, 7, 30, tzinfo=UTC))
    world.policy(schedule="45 * * * *")
    world.at(2030, 1, 1, 7, 45)
    world.answer()
    world.at(2030, 1, 1, 8, 43)
    world.policy(schedule="45 * * * *", paused=True)
    world.at(2030, 1, 1, 8, 50)
    world.policy(schedule="45 * * * *")
    missed = [name for name in world.notices() if name.startswith("snapshot_missed")]
    assert len(missed) == 1
    world.at(2030, 1, 1, 9, 44)
    assert world.orders() == ["s-20300101t074500z"]
    world.at(2030, 1, 1, 9, 45)
    assert world.orders() == ["s-20300101t074500z", "s-20300101t094500z"]


@pytest.mark.parametrize(
    ("day", "utc"), [((2027, 3, 28), (2027, 3, 28, 1, 0)), ((2027, 10, 31), (2027, 10, 31, 0, 30))]
)
def test_scenario_40_time_zones_and_changes_of_the_clock(day: tuple[int, ...], utc: tuple[int, ...]) -> None:
    """02:30 in Rome: absent on one day, there twice on another; one run each."""
    start = moment(*day) - timedelta(hours=6)
    world = Snapshots(now=start)
    world.policy(schedule="30 2 * * *", timezone="Europe/Rome")
    for minutes in range(0, 24 * 60, 10):
        world.at(*(start + timedelta(minutes=minutes)).timetuple()[:6])
        world.answer()
    slots = [
        version.record.slot  # type: ignore[union-attr]
        for version in world.state.tables[subjects.SNAPSHOT_ORDER].values()
    ]
    assert slots == [moment(*utc)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("timezone", "Europe/Atlantis"), ("timezone", "../etc/passwd"), ("schedule", "61 * * * *"), ("schedule", "daily")],
)
def test_an_unknown_zone_or_schedule_is_refused(field: str, value: str) -> None:
    with pytest.raises(ValidationError, match=field):
        SnapshotPolicy(**{field: value})  # type: ignore[arg-type]


def test_missed_slots_are_one_late_run_within_the_starting_deadline() -> None:
    world = Snapshots()
    world.policy(schedule="*/10 * * * *", starting_deadline_seconds=1800)
    world.at(2030, 1, 1, 0, 10)
    world.answer()
    world.now = datetime(2030, 1, 1, 1, 5, tzinfo=UTC)  # nobody led for an hour
    world.settle()
    assert world.orders("running") == ["s-20300101t010000z"]


def test_a_slot_missed_for_longer_than_the_starting_deadline_is_told_of() -> None:
    world = Snapshots()
    world.policy(schedule="0 2 * * *", starting_deadline_seconds=600)
    world.now = datetime(2030, 1, 1, 3, 0, tzinfo=UTC)
    world.settle()
    assert world.orders() == []
    assert any(name.startswith("snapshot_missed") for name in world.notices())


def test_w17_a_stuck_run_times_out_and_the_next_slot_is_not_held() -> None:
    world = Snapshots()
    world.policy(schedule="0 * * * *", timeout_seconds=600)
    world.at(2030, 1, 1, 1, 0)
    world.at(2030, 1, 1, 1, 10)
    assert world.orders("timed_out") == ["s-20300101t010000z"]
    assert any(name.startswith("snapshot_failed") for name in world.notices())
    world.at(2030, 1, 1, 1, 11)
    assert world.orders("running") == ["s-20300101t010000z-2"], "the slot is tried again"
    world.at(2030, 1, 1, 2, 0)
    assert "s-20300101t020000z" in world.orders("running")


def test_w17_a_failed_run_does_not_consume_its_slot() -> None:
    world = Snapshots()
    world.policy(schedule="0 1 * * *")
    world.at(2030, 1, 1, 1, 0)
    world.answer("failed", error="disk full")
    world.at(2030, 1, 1, 1, 1)
    world.answer("failed", error="disk full")
    world.at(2030, 1, 1, 1, 3)
    world.answer("complete")
    assert world.orders("complete") == ["s-20300101t010000z-3"]
    assert not any(name.startswith("snapshot_failed") for name in world.notices())
    world.at(2030, 1, 1, 23, 0)
    assert world.orders("running") == []


def test_keep_last_prunes_the_oldest_and_forgets_it_when_it_is_deleted() -> None:
    world = Snapshots()
    world.policy(schedule="0 * * * *", keep_last=2)
    for hour in (1, 2, 3):
        world.at(2030, 1, 1, hour, 0)
        world.answer()
    prune = world.get(subjects.SNAPSHOT_PRUNE, ("n1", *VOLUME), SnapshotPrune)
    assert prune.ids == ("s-20300101t010000z",)
    world.answer()
    assert world.orders() == ["s-20300101t020000z", "s-20300101t030000z"]
    assert ("n1", *VOLUME) not in world.state.tables[subjects.SNAPSHOT_PRUNE]


def test_seven_are_kept_where_no_number_is_given() -> None:
    world = Snapshots()
    world.policy(schedule="0 * * * *")
    for hour in range(1, 12):
        world.at(2030, 1, 1, hour, 0)
        world.answer()
        world.answer()
    assert len(world.orders()) == 7


def test_each_kept_snapshot_says_why_by_the_days_of_its_zone() -> None:
    slots = [datetime(2030, 1, day, hour, tzinfo=UTC) for day, hour in ((3, 12), (3, 1), (2, 23), (2, 3), (1, 3))]
    reasons = keep_reasons(slots, SnapshotPolicy(keep_last=1, keep_daily=2, timezone="Asia/Tokyo"))
    assert reasons == [("one of the last 1", "the last of 2030-01-03"), (), (), ("the last of 2030-01-02",), ()]


def test_failed_runs_go_when_a_newer_one_is_complete() -> None:
    world = Snapshots()
    world.policy(schedule="0 * * * *")
    world.at(2030, 1, 1, 1, 0)
    world.answer("failed", error="busy")
    world.at(2030, 1, 1, 1, 1)
    world.answer()
    world.answer()
    assert world.orders() == ["s-20300101t010000z-2"]


def test_slots_are_exact_at_their_second() -> None:
    policy = SnapshotPolicy(schedule="30 2 * * *")
    slot = datetime(2030, 1, 1, 2, 30, tzinfo=UTC)
    assert latest_slot(policy, slot) == slot
    assert latest_slot(policy, slot - timedelta(microseconds=1)) == slot - timedelta(days=1)
    assert next_slot(policy, slot) == slot + timedelta(days=1)
