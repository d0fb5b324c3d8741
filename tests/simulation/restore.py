"""Quarantine: what the leader of the service that keeps a kind does about a user's record that does not count.

The newest valid version is written again, or a tombstone where there never was one, on condition that the bad message is
still the last: a user's own correction wins, and doing it twice is harmless.
"""

from collections.abc import Callable
from datetime import datetime

from shared.errors import InvalidRecord, InvalidSubject
from shared.model.service import Notice
from shared.runtime.encode import Outgoing, outgoing
from shared.service import Change, Version
from shared.subjects import NOTICE

from .log import Log
from .wire import Stored


def newest_valid(log: Log, subject: str, before: int, refused: Callable[[Version], bool]) -> Version | None:
    """The last version of a subject before a sequence that counts, tombstones included."""
    for stored in reversed(log.versions_of(subject)):
        if stored.sequence < before:
            try:
                version = log.read(stored)
            except (InvalidRecord, InvalidSubject):
                continue
            if not refused(version):
                return version
    return None


def restoring(log: Log, service: str, bad: Stored, refused: Callable[[Version], bool], now: datetime) -> list[Outgoing]:
    """The notice (which will carry the fence) and the restoring message."""
    assert bad.kind is not None
    good = newest_valid(log, bad.subject, bad.sequence, refused)
    notice = Notice(severity="warning", message=f"{bad.subject} at {bad.sequence} cannot be read", at=now)
    key = (service, "rejected", bad.kind.name, *bad.key)
    restored = Change(bad.kind, bad.key, good.record if good else None, expected=bad.sequence)
    origin = (good.restores or good.sequence) if good else 0
    return [outgoing(Change(NOTICE, key, notice)), outgoing(restored, restores=origin)]
