"""A plan as the messages of a commit: pure, no I/O, no clock.

What the simulator relies on: `messages` gives the messages of one batch in their order: the changes of each decision,
then its explanation. Their sequences, once stored, are consecutive in that order. The headers of a message are complete
except for those of the batch and the fence, which the committer adds (`commit`), or the simulator's log.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import BaseModel

from shared import codec, subjects
from shared.model.base import compact
from shared.model.service import DecisionRecord
from shared.service import Change, Decision, Plan, Version
from shared.subjects import Key, Kind

SERVICE = "Steer-Service"
TERM = "Steer-Term"
CAUSE = "Steer-Cause"
OPERATION = "Steer-Operation"
RESTORES = "Steer-Restores"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"

DELETE = "delete"
SEQUENCE_DIGITS = 18
"""More than any log has. Python refuses to read some thousands of them, which anyone may write into a header."""

_EXPLANATION = compact(DecisionRecord(read_sequence=0, now=datetime(1970, 1, 1, tzinfo=UTC), outcome=""))


class Outgoing(NamedTuple):
    """One message to be stored, and the record in it (None = a tombstone).

    `expected` is the last sequence that its subject must have; `restores` the sequence of the version it repeats.
    """

    kind: Kind
    key: Key
    subject: str
    body: bytes
    record: BaseModel | None
    cause: int = 0
    expected: int | None = None
    restores: int | None = None

    def version(self, sequence: int, at: datetime) -> Version:
        """What a follower will read once it is stored at `sequence`."""
        restores = 0 if self.restores is None else self.restores or sequence
        return Version(self.kind, self.key, sequence, self.record, at, restores)

    def headers(self, service: str, term: int) -> dict[str, str]:
        """Those that every writer sends; the fence and the batch come on top."""
        headers = {SERVICE: service, TERM: str(term)}
        if self.cause:
            headers[CAUSE] = str(self.cause)
        if self.record is None:
            headers[OPERATION] = DELETE
        if self.restores is not None:
            headers[RESTORES] = str(self.restores)
        if self.expected is not None:
            headers[EXPECTED] = str(self.expected)
        return headers


def messages(service: str, plan: Plan, read_sequence: int, now: datetime) -> list[Outgoing]:
    """The messages of a plan. Raises `InvalidRecord` for a record that is too large to be stored."""
    found: list[Outgoing] = []
    for decision in plan.decisions:
        made = [outgoing(change, decision.cause) for change in decision.changes]
        found += made
        if decision.explain:
            written = tuple([message.subject for message in made])
            found.append(explanation(service, decision, written, read_sequence, now))
    return found


def outgoing(change: Change, cause: int = 0, restores: int | None = None) -> Outgoing:
    """One change as a message."""
    body = b"" if change.record is None else codec.encode(change.record)
    subject = change.kind.subject(*change.key)
    return Outgoing(change.kind, change.key, subject, body, change.record, cause, change.expected, restores)


def explanation(
    service: str, decision: Decision, written: tuple[str, ...], read_sequence: int, now: datetime
) -> Outgoing:
    """The decision record of a decision, which wrote these subjects: `steer.decision.<service>.<about>.<key>`."""
    record = _EXPLANATION.replaced(
        read_sequence=read_sequence,
        now=now,
        outcome=decision.outcome,
        reasons=dict(decision.reasons),
        observation=dict(decision.observation),
        changes=written,
    )
    key = (service, decision.about, *decision.key)
    return outgoing(Change(subjects.DECISION, key, record), decision.cause)


def is_tombstone(headers: Mapping[str, str] | None) -> bool:
    """Whether a message deletes its record."""
    return headers is not None and headers.get(OPERATION) == DELETE


def restores_in(headers: Mapping[str, str] | None, sequence: int) -> int:
    """Which version the message at `sequence` repeats: itself, where it answers and there was none; 0 for no answer."""
    if headers is None or RESTORES not in headers:
        return 0
    return sequence_in(headers, RESTORES) or sequence


def sequence_in(headers: Mapping[str, str] | None, name: str) -> int:
    """A sequence in a header; 0 where there is none, or nonsense that some publisher wrote."""
    text = headers.get(name, "") if headers is not None else ""
    return int(text) if len(text) <= SEQUENCE_DIGITS and text.isascii() and text.isdigit() else 0
