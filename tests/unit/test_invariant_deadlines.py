"""What waits has its deadline in its record, and has ended soon after it."""

from datetime import UTC, datetime, timedelta

from shared.invariants.checks import Checks
from shared.invariants.deadlines import PATIENCE, DeadlinesAreKept
from shared.invariants.logged import Breach, Logged
from shared.model.build import BuildStatus
from shared.model.node import Node
from shared.model.service import Term
from shared.runtime.encode import SERVICE
from shared.service import Version
from shared.subjects import BUILD_STATUS, NODE, TERM

KEY = ("shop", "web", "00000000000000000000000001")
START = datetime(2030, 1, 1, tzinfo=UTC)
QUEUED = BuildStatus(state="queued", pool="default", owner="a", queued_at=START, deadline=START + timedelta(minutes=1))


class Log:
    def __init__(self) -> None:
        self._checks = Checks([DeadlinesAreKept()])
        self._sequence = 0

    def store(self, record: BuildStatus | None, at: datetime, key: tuple[str, ...] = KEY) -> list[Breach]:
        """The builder writes."""
        return self._take(Version(BUILD_STATUS, key, self._sequence + 1, record, at), {SERVICE: "builder"})

    def lead(self, at: datetime) -> None:
        """A builder begins to lead."""
        term = Term(holder="b", lease_revision=1, opened_at=at)
        assert not self._take(Version(TERM, ("builder",), self._sequence + 1, term, at), {})

    def node(self, at: datetime) -> list[Breach]:
        """Somebody else writes."""
        return self._take(Version(NODE, ("n1",), self._sequence + 1, Node(), at), {})

    def _take(self, version: Version, headers: dict[str, str]) -> list[Breach]:
        self._sequence += 1
        subject = version.kind.subject(*version.key)
        return self._checks.take([Logged(self._sequence, version.at, subject, headers, b"", version)])


def test_what_waits_without_a_deadline_is_told_at_once() -> None:
    (breach,) = Log().store(QUEUED.replaced(deadline=None), START)
    assert breach.detail == "waits without a deadline"


def test_what_has_ended_needs_no_deadline() -> None:
    log = Log()
    assert not log.store(QUEUED, START)
    assert not log.store(QUEUED.replaced(state="failed", deadline=None), START)
    assert not log.store(None, START + timedelta(hours=1), ("shop", "web", "00000000000000000000000002"))


def test_what_is_overdue_is_told_once_when_patience_is_over() -> None:
    log = Log()
    other = ("shop", "web", "00000000000000000000000002")
    overdue = START + timedelta(minutes=1) + PATIENCE
    assert not log.store(QUEUED, START)
    assert not log.store(None, overdue, other)
    (breach,) = log.store(None, overdue + timedelta(seconds=1), other)
    assert breach.subject == BUILD_STATUS.subject(*KEY)
    assert not log.store(None, overdue + timedelta(seconds=2), other)


def test_nothing_is_overdue_while_nobody_leads_and_until_a_new_leader_had_its_time() -> None:
    log = Log()
    other = ("shop", "web", "00000000000000000000000002")
    morning = START + timedelta(hours=8)
    log.lead(START)
    assert not log.store(QUEUED, START)
    assert not log.node(morning)
    log.lead(morning)
    assert not log.store(None, morning + timedelta(seconds=5), other)
    (breach,) = log.store(None, morning + PATIENCE + timedelta(seconds=1), other)
    assert breach.subject == BUILD_STATUS.subject(*KEY)


def test_a_deadline_that_was_moved_is_the_one_that_counts() -> None:
    log = Log()
    later = QUEUED.replaced(deadline=START + timedelta(hours=1))
    assert not log.store(QUEUED, START)
    assert not log.store(later, START)
    assert not log.store(later, START + timedelta(minutes=30))
