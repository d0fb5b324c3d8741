"""What is done about a message that cannot be read, or is refused: pure. `repair` does the reading and the writing.

What the simulator relies on: `plan_restoration` and `restoring` are the whole decision.

The leader of the service that keeps the kind copies the bad message to `STEER_REJECTED`, raises a notice, and publishes
the newest valid version again, on condition that the bad one is still the last: so a user's own correction wins, and
doing it twice is harmless. A subject whose tokens have not their form never had a valid version: it gets a tombstone. A
bad record of a machine is left alone, with a notice.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel

from shared import codec, subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.service import Notice, Rejection
from shared.runtime.encode import RESTORES, Outgoing, is_tombstone, outgoing, sequence_in
from shared.runtime.follower import Message
from shared.service import Change, Version
from shared.subjects import Key, Kind

MAX_REJECTED_BODY_BYTES = 64 * 1024
MAX_REJECTED_SUBJECT = 1024
MOST_COPIES = 100
"""Of one flood on one subject, the newest so many are copied."""

NOTICE_KIND = "record_rejected"
_WILDCARD = re.compile(r"[*>]")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")

Refuses = Callable[[Version], str]
"""Why a valid version must not come into force; empty where it may. See `Service.refuses`."""


@dataclass(frozen=True, slots=True)
class Restoration:
    """The bad messages since the newest valid one, oldest first; `good` None = there never was a valid one."""

    kind: Kind
    key: Key
    bad: tuple[tuple[Message, tuple[str, ...]], ...]
    good: Message | None

    @property
    def last(self) -> Message:
        return self.bad[-1][0]

    @property
    def restored_sequence(self) -> int:
        """The version that is repeated, followed to its origin."""
        return 0 if self.good is None else sequence_in(self.good.headers, RESTORES) or self.good.sequence


def problems_of(message: Message, refuses: Refuses = lambda _: "") -> tuple[str, ...]:
    """Why a message does not count: it cannot be read, or the service that keeps its kind refuses it.

    Empty where it counts, and for a tombstone on a malformed subject: our own answer.
    """
    try:
        kind, key = subjects.kind_of(message.subject)
        if is_tombstone(message.headers):
            return ()
        record = codec.decode(kind, key, message.body)
    except InvalidSubject as error:
        return (printable(error.reason),)
    except InvalidRecord as error:
        return tuple(printable(str(problem)) for problem in error.problems)
    reason = refuses(Version(kind, key, message.sequence, record, message.at))
    return (reason,) if reason else ()


def plan_restoration(versions: Sequence[Message], refuses: Refuses = lambda _: "") -> Restoration | None:
    """What to do about a subject, given its newest versions, oldest first. None where the last one counts."""
    bad: list[tuple[Message, tuple[str, ...]]] = []
    good = None
    for message in reversed(versions):
        problems = problems_of(message, refuses)
        if not problems:
            good = message
            break
        if len(bad) < MOST_COPIES:
            bad.append((message, problems))
    if not bad:
        return None
    kind, key = subjects.kind_of(bad[0][0].subject)
    return Restoration(kind, key, tuple(reversed(bad)), good)


def restoring(service: str, restoration: Restoration, now: datetime) -> list[Outgoing]:
    """The commit that answers: the notice, which carries the fence, and the newest valid version or a tombstone."""
    last, problems = restoration.bad[-1]
    good = restoration.good
    record: BaseModel | None = None
    body = b""
    if good is not None and not is_tombstone(good.headers):
        record, body = codec.decode(restoration.kind, restoration.key, good.body), good.body
    again = Outgoing(
        restoration.kind,
        restoration.key,
        last.subject,
        body,
        record,
        cause=last.sequence,
        # A malformed subject has no user who could correct it; and a literal `*` in it could not be compared.
        expected=last.sequence if is_well_formed(last.subject) else None,
        restores=restoration.restored_sequence,
    )
    text = f"{printable(last.subject)} at {last.sequence} does not count: {'; '.join(problems)}"
    text += f"; version {good.sequence} rules" if record is not None and good else "; there is no valid version"
    return [notice(service, last.subject, restoration.kind, text, last.sequence, now), again]


def notice(service: str, subject: str, kind: Kind, text: str, sequence: int, now: datetime) -> Outgoing:
    """An unreadable message, told to people."""
    record = Notice(
        severity="warning", message=text[:4000], at=now, fields={"subject": printable(subject), "sequence": sequence}
    )
    return outgoing(Change(subjects.NOTICE, notice_key(service, subject, kind), record), sequence)


def notice_key(service: str, subject: str, kind: Kind) -> Key:
    """The key of the notice about a subject, with what a key may not hold replaced."""
    tokens = printable(subject).removeprefix(f"{kind.prefix}.").split(".")[:16]
    return (service, NOTICE_KIND, kind.name, *((_UNFIT.sub("_", token) or "_")[:128] for token in tokens))


def rejection(restoration: Restoration, index: int) -> tuple[str, Rejection]:
    """The copy of one bad message: its subject in `STEER_REJECTED`, and what is kept."""
    message, problems = restoration.bad[index]
    body = message.body[:MAX_REJECTED_BODY_BYTES]
    try:
        text, encoding = body.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(body).decode(), "base64"
    record = Rejection(
        subject=printable(message.subject),
        sequence=message.sequence,
        kept_by=restoration.kind.keeper or "",
        problems=tuple(problem[:4000] for problem in problems[:50]),
        restored_sequence=restoration.restored_sequence,
        received_at=message.at,
        body=text,
        body_encoding="utf-8" if encoding == "utf-8" else "base64",
        body_bytes=len(message.body),
    )
    name = _WILDCARD.sub("_", message.subject[:MAX_REJECTED_SUBJECT].rstrip("."))
    return subjects.rejected(name), record


def is_well_formed(subject: str) -> bool:
    """Whether a subject is one that a record can have. The server takes literal wildcards, and any bytes."""
    try:
        subjects.parse(subject)
    except InvalidSubject:
        return False
    return True


def printable(text: str) -> str:
    """A subject may hold bytes that are not UTF-8; a record may not."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
