"""What a pass over one thing comes to, while it is being made: changes, their reasons, and what it waits for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from services.scheduler.placement import Placed, Request
from services.scheduler.state import SERVICE, State
from shared import subjects
from shared.model.service import DecisionRecord, Notice, Severity
from shared.service import MAX_BATCH, Change, Decision
from shared.subjects import Key, Kind

FULL = MAX_BATCH * 3 // 4
REASONS_AFTER = timedelta(seconds=60)
"""What waits is placed as soon as something cures it. What does not cure it may still change its reasons: they are looked
at anew now and then."""


@dataclass
class Draft:
    """`incarnation` is the number that new replicas of this pass get: the highest sequence known, so it never repeats."""

    state: State
    about: str
    key: Key
    now: datetime
    changes: list[Change] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    reasons: dict[str, Any] = field(default_factory=dict)
    observation: dict[str, Any] = field(default_factory=dict)
    wakes: list[datetime] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    cause: int = 0
    ended: set[Key] = field(default_factory=set)
    """The notices that were taken back."""

    @property
    def incarnation(self) -> int:
        return self.state.sequence

    @property
    def full(self) -> bool:
        """No further step: what there is must fit into one commit. The next pass goes on."""
        return len(self.changes) >= FULL

    def wake(self, at: datetime) -> None:
        """Look again then, if that is still to come."""
        if at > self.now:
            self.wakes.append(at)

    def change(self, kind: Kind, key: Key, record: Any, expected: int | None = None) -> None:
        self.changes.append(Change(kind, key, record, expected))

    def because(self, sequence: int) -> None:
        """The newest record that led here."""
        self.cause = max(self.cause, sequence)

    def notice(self, kind: str, severity: Severity, message: str, **fields: Any) -> None:
        """Raise a notice, once per episode: one that stands with the same message stays as it is."""
        key = (SERVICE, kind, *self.key)
        standing = self.state.get(subjects.NOTICE, key, Notice)
        if standing is None or standing.message != message:
            self.change(subjects.NOTICE, key, Notice(severity=severity, message=message, at=self.now, fields=fields))

    def end_notice(self, kind: str) -> None:
        """Take a notice back: its episode is over."""
        key = (SERVICE, kind, *self.key)
        if self.state.get(subjects.NOTICE, key, Notice) is not None and key not in self.ended:
            self.ended.add(key)
            self.change(subjects.NOTICE, key, None)

    def short(self, placed: Placed, request: Request, missing: int, wanted: int) -> None:
        """`missing` of the `wanted` replicas wait, with the reasons that account for every node."""
        self.waiting.append(request)
        self.wake(self.now + REASONS_AFTER)
        self.reasons["pending"] = {"missing": missing, "wanted": wanted, **placed.reasons}
        filters = ", ".join(sorted(placed.reasons.get("rejected", {}))) or "no nodes"
        message = f"{missing} of {wanted} replicas have no place: {filters}"
        self.notice("no_capacity", "warning", message, **self.pending)

    def give_up(self) -> None:
        """What waits is not wanted any more: its reasons stay, as those of the end."""
        if self.pending:
            self.reasons["unplaced"] = self.reasons.pop("pending")
            self.waiting.clear()
            self.changes = [change for change in self.changes if change.key[1:2] != ("no_capacity",)]

    @property
    def pending(self) -> dict[str, Any]:
        """What could not be placed and why; empty where nothing waits."""
        found = self.reasons.get("pending", {})
        assert isinstance(found, dict)
        return found

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The reasons of the decision in force about this thing."""
        record = self.state.get(subjects.DECISION, (SERVICE, self.about, *self.key), DecisionRecord)
        return record.reasons if record is not None else {}

    def decision(self) -> Decision | None:
        """The decision, or None where nothing changes: neither a record, nor what it waits for and why."""
        if not self.pending:
            self.end_notice("no_capacity")
        recorded = self.recorded
        waits, waited = _why(self.pending), _why(recorded.get("pending"))
        held, was_held = self.reasons.get("held"), recorded.get("held")
        if not self.changes and waits == waited and held == was_held:
            return None
        if held != was_held:
            self.outcomes.append(f"held: {held}" if held else "held no more")
        if waits and waits != waited:
            self.outcomes.append("waits: " + ", ".join(waits[1]))
        elif waited and not waits:
            self.outcomes.append("waits no more")
        return Decision(
            about=self.about,
            key=self.key,
            outcome="; ".join(self.outcomes),
            changes=tuple(self.changes),
            reasons=self.reasons,
            observation=self.observation,
            cause=self.cause,
            explain=bool(self.reasons or waited or was_held)
            or any(change.record is not None for change in self.changes),
        )


def _why(pending: Any) -> tuple[int, tuple[str, ...]] | None:
    """What makes one wait for capacity different from another: how many are missing, and which filters stand against."""
    if not pending or not isinstance(pending, Mapping):
        return None
    return int(pending.get("missing", 0)), tuple(sorted(pending.get("rejected", {})))
