"""What travels: messages, plans as messages, and messages as versions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from pydantic import BaseModel

from shared import codec
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.service import DecisionRecord, Term
from shared.service import Change, Decision, Plan, Version
from shared.subjects import DECISION, TERM, Key, Kind, parse

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
OPERATION = "Steer-Operation"
RESTORES = "Steer-Restores"
SERVICE_HEADER = "Steer-Service"
TERM_HEADER = "Steer-Term"
CAUSE_HEADER = "Steer-Cause"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be published. `version` is what it will be read as, without its sequence; None for foreign bodies."""

    subject: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of the log. `kind` is None for a subject that is not one of ours."""

    sequence: int
    at: datetime
    subject: str
    body: bytes
    headers: Mapping[str, str]
    kind: Kind | None
    key: Key


def version_or_error(stored: Stored) -> Version | InvalidRecord | InvalidSubject:
    """What a reader finds in a message."""
    try:
        kind, key = parse(stored.subject)
        record: BaseModel | None = None
        if stored.headers.get(OPERATION) != "delete":
            record = codec.decode(kind, key, stored.body)
    except (InvalidRecord, InvalidSubject) as error:
        return error
    return Version(kind, key, stored.sequence, record, stored.at, int(stored.headers.get(RESTORES, 0)))


def put(
    kind: Kind,
    key: Key,
    record: BaseModel | None,
    expected: int | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Message:
    """A record, or with None its tombstone."""
    found = dict(headers)
    if record is None:
        found[OPERATION] = "delete"
    if expected is not None:
        found[EXPECTED] = str(expected)
    body = b"" if record is None else codec.encode(record)
    return Message(kind.subject(*key), body, found, Change(kind, key, record, expected))


def term_message(service: str, term: Term, expected: int) -> Message:
    return put(TERM, (service,), term, expected, {SERVICE_HEADER: service})


def plan_messages(service: str, plan: Plan, term: int, read_sequence: int, now: datetime) -> list[Message]:
    """What a plan writes: each decision's explanation, then its changes. The first message carries the fence."""
    messages: list[Message] = []
    for decision in plan.decisions:
        headers = {SERVICE_HEADER: service, TERM_HEADER: str(term)}
        if decision.cause:
            headers[CAUSE_HEADER] = str(decision.cause)
        if decision.explain:
            key = (service, decision.about, *decision.key)
            messages.append(put(DECISION, key, _explanation(decision, read_sequence, now), headers=headers))
        messages += [put(c.kind, c.key, c.record, c.expected, headers=headers) for c in decision.changes]
    return messages


def fenced(service: str, term: int, messages: list[Message]) -> list[Message]:
    """The same messages, refused by the server once another term has been opened."""
    first = messages[0]
    assert EXPECTED not in first.headers, "the message that carries the fence has no room for an expectation of its own"
    headers = {**first.headers, EXPECTED: str(term), EXPECTED_SUBJECT: TERM.subject(service)}
    return [Message(first.subject, first.body, headers, first.change), *messages[1:]]


def _explanation(decision: Decision, read_sequence: int, now: datetime) -> DecisionRecord:
    return DecisionRecord(
        read_sequence=read_sequence,
        now=now,
        outcome=decision.outcome,
        reasons=dict(decision.reasons),
        observation=dict(decision.observation),
        changes=tuple(change.subject for change in decision.changes),
    )
