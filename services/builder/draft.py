"""What a look at one thing comes to, while it is being made: changes, their reasons, and when to look again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from services.builder.state import SERVICE, State
from shared import subjects
from shared.model.build import BuildStatus
from shared.model.service import Notice, Severity
from shared.service import Change, Decision
from shared.subjects import Key, Kind


@dataclass
class Draft:
    """A decision about `key`, which is an `about`: a build, a pool, a lease, an app."""

    state: State
    about: str
    key: Key
    now: datetime
    changes: list[Change] = field(default_factory=list)
    outcome: str = ""
    reasons: dict[str, Any] = field(default_factory=dict)
    observation: Mapping[str, Any] = field(default_factory=dict)
    wake_at: datetime | None = None
    cause: int = 0

    def wake(self, at: datetime | None) -> None:
        """Look again then, if that is still to come."""
        if at is not None and at > self.now and (self.wake_at is None or at < self.wake_at):
            self.wake_at = at

    def change(self, kind: Kind, key: Key, record: Any, expected: int | None = None) -> None:
        self.changes.append(Change(kind, key, record, expected))

    def notice(self, kind: str, severity: Severity, message: str, **fields: Any) -> None:
        """Raise a notice; one that stands with the same message stays as it is."""
        key = (SERVICE, kind, *self.key)
        standing = self.state.get(subjects.NOTICE, key, Notice)
        if standing is None or standing.message != message:
            self.change(subjects.NOTICE, key, Notice(severity=severity, message=message, at=self.now, fields=fields))

    def end_notice(self, kind: str) -> None:
        """Take a notice back: its episode is over."""
        key = (SERVICE, kind, *self.key)
        if self.state.get(subjects.NOTICE, key, Notice) is not None:
            self.change(subjects.NOTICE, key, None)

    @property
    def size(self) -> int:
        """How many messages it would be."""
        return len(self.changes) + bool(self.changes and self.outcome)

    def status_in(self, pool: str) -> BuildStatus | None:
        """What becomes of a build of that pool; None where it is another's, or does not change."""
        for change in self.changes:
            if isinstance(change.record, BuildStatus) and change.record.pool == pool:
                return change.record
        return None

    @property
    def pool(self) -> str:
        """The pool of the build that changes; empty where none does."""
        return next((change.record.pool for change in self.changes if isinstance(change.record, BuildStatus)), "")

    def decision(self) -> Decision:
        """What is decided; it changes something."""
        return Decision(
            about=self.about,
            key=self.key,
            outcome=self.outcome,
            changes=tuple(self.changes),
            reasons=self.reasons,
            observation=self.observation,
            cause=self.cause,
            explain=bool(self.outcome),
        )
