"""What travels: messages on their way and in the log, and what a reader finds in them.

How a plan becomes messages is `shared.runtime.encode`'s, used here as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import BaseModel

from shared import codec
from shared.errors import InvalidRecord, InvalidSubject
from shared.invariants.batches import BATCH, BATCH_COMMIT, BATCH_SEQUENCE
from shared.model.service import Term
from shared.runtime import encode
from shared.runtime.encode import EXPECTED, EXPECTED_SUBJECT, Outgoing
from shared.service import Change, Version
from shared.subjects import TERM, Key, Kind, parse


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be published."""

    subject: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


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
        deleted = encode.is_tombstone(stored.headers)
        record = None if deleted else codec.decode(kind, key, stored.body)
    except (InvalidRecord, InvalidSubject) as error:
        return error
    restores = encode.restores_in(stored.headers, stored.sequence)
    return Version(kind, key, stored.sequence, record, stored.at, restores)


def put(kind: Kind, key: Key, record: BaseModel | None, expected: int | None = None) -> Message:
    """A record, or with None its tombstone, as a user or a doer publishes it."""
    message = encode.outgoing(Change(kind, key, record, expected))
    headers = {} if record is not None else {encode.OPERATION: encode.DELETE}
    if expected is not None:
        headers[EXPECTED] = str(expected)
    return Message(message.subject, message.body, headers)


def term_message(service: str, term: Term, expected: int) -> Message:
    """Opens a term, on condition that nobody has opened one since."""
    return put(TERM, (service,), term, expected)


def commit(service: str, term: int, outgoing: Sequence[Outgoing], batch: str, *, fence: bool = True) -> list[Message]:
    """A batch, with an id of its own. Its first message without an expectation carries the fence: the server refuses all
    of it once another term has been opened."""
    messages = [
        Message(item.subject, item.body, item.headers(service, term) | _in_batch(batch, number, len(outgoing)))
        for number, item in enumerate(outgoing, 1)
    ]
    index = next((index for index, item in enumerate(outgoing) if item.expected is None), None)
    if fence and index is not None:
        plain = messages[index]
        headers = {**plain.headers, EXPECTED: str(term), EXPECTED_SUBJECT: TERM.subject(service)}
        messages[index] = Message(plain.subject, plain.body, headers)
    return messages


def _in_batch(batch: str, number: int, count: int) -> dict[str, str]:
    """A message alone is no batch."""
    if count == 1:
        return {}
    headers = {BATCH: batch, BATCH_SEQUENCE: str(number)}
    return headers | {BATCH_COMMIT: "1"} if number == count else headers
