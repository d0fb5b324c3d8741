"""Quarantine: what the leader of the service that keeps a kind does about a user's record that cannot be read.

The newest valid version is written again, or a tombstone where there never was one, on condition that the bad message is
still the last: a user's own correction wins, and doing it twice is harmless.
"""

from datetime import datetime

from shared.errors import InvalidRecord, InvalidSubject
from shared.model.service import Notice
from shared.subjects import NOTICE

from .log import Log
from .wire import EXPECTED, OPERATION, RESTORES, SERVICE_HEADER, TERM_HEADER, Message, Stored, put


def newest_valid(log: Log, subject: str, before: int) -> Stored | None:
    """The last readable version of a subject before a sequence, tombstones included."""
    for stored in reversed(log.versions_of(subject)):
        if stored.sequence < before:
            try:
                log.read(stored)
            except (InvalidRecord, InvalidSubject):
                continue
            return stored
    return None


def restoring(log: Log, service: str, term: int, bad: Stored, now: datetime) -> list[Message]:
    """The notice (which will carry the fence) and the restoring message."""
    good = newest_valid(log, bad.subject, bad.sequence)
    notice = Notice(severity="warning", message=f"{bad.subject} at {bad.sequence} cannot be read", at=now)
    assert bad.kind is not None
    by = {SERVICE_HEADER: service, TERM_HEADER: str(term)}
    headers = {
        **by,
        EXPECTED: str(bad.sequence),
        RESTORES: str(_origin(good)),
    }
    if good is None or good.headers.get(OPERATION) == "delete":
        headers[OPERATION] = "delete"
    restored = Message(bad.subject, b"" if good is None else good.body, headers)
    key = (service, "rejected", *(token if token.isascii() else "x" for token in bad.subject.split(".")))
    return [put(NOTICE, key, notice, headers=by), restored]


def _origin(good: Stored | None) -> int:
    """The sequence of the user's own message: a version that is a repetition already names it."""
    if good is None:
        return 0
    return int(good.headers.get(RESTORES, 0)) or good.sequence
