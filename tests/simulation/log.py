"""The log in memory: the rules of a JetStream stream that Steersman relies on, and no others.

* One total order: every stored message has the next sequence and a timestamp that never goes back.
* `Nats-Expected-Last-Subject-Sequence` (with `…-Subject`: of another subject) is checked when the message is stored; one
  that does not hold refuses it with 10071 and nothing is stored. A subject without messages stands at 0, also after a
  purge; a tombstone is a message like any other.
* A batch is stored as a whole, next to each other, or not at all; a check of a subject that the batch itself writes is
  refused with 10164, more than 1,000 messages with 10199.
* A purge removes the messages of the subjects of one filter below a sequence; sequences are never given out again.

Each rule has a test against the real server in `tests/integration/test_log_assumptions.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from pydantic import BaseModel

from shared.errors import InvalidRecord, InvalidSubject
from shared.model.service import Rejection
from shared.runtime.encode import EXPECTED, EXPECTED_SUBJECT
from shared.service import MAX_BATCH, Version
from shared.subjects import Key, Kind, kind_of

from .wire import Message, Stored, version_or_error

WRONG_LAST_SEQUENCE = 10071
CONCURRENT_CHECK = 10164
BATCH_TOO_LARGE = 10199


class Refused(Exception):
    """The server's error: nothing was stored."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


Watcher = Callable[[Sequence[Stored]], None]


class Log:
    """`watch` calls back after each publish or batch with what it stored: a follower sees it later, a checker at once."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._stored: dict[int, Stored] = {}
        self._by_subject: dict[str, list[int]] = {}
        self._subjects_of: dict[str, dict[str, None]] = {}
        self._read: dict[int, Version | InvalidRecord | InvalidSubject] = {}
        self._watchers: list[Watcher] = []
        self.last_sequence = 0
        self.rejected: dict[int, Rejection] = {}
        """The copies of what could not be read, by sequence: a stream of its own."""

    def watch(self, callback: Watcher) -> None:
        self._watchers.append(callback)

    def publish(self, message: Message) -> int:
        """Store one message; its sequence. Raises `Refused`."""
        return self.publish_batch([message])

    def publish_batch(self, messages: Sequence[Message]) -> int:
        """Store all or nothing; the sequence of the last. Raises `Refused`."""
        if len(messages) > MAX_BATCH:
            raise Refused(BATCH_TOO_LARGE, f"{len(messages)} messages in one batch")
        written: set[str] = set()
        for message in messages:
            self._check(message, written)
            written.add(message.subject)
        stored = [self._append(message) for message in messages]
        for callback in self._watchers:
            callback(stored)
        return self.last_sequence

    def _check(self, message: Message, written: set[str]) -> None:
        expected = message.headers.get(EXPECTED)
        if expected is None:
            return
        subject = message.headers.get(EXPECTED_SUBJECT, message.subject)
        if subject in written:
            raise Refused(CONCURRENT_CHECK, f"{subject} is written and checked in one batch")
        if self.last_of(subject) != int(expected):
            raise Refused(WRONG_LAST_SEQUENCE, f"{subject} is at {self.last_of(subject)}, not at {expected}")

    def _append(self, message: Message) -> Stored:
        self.last_sequence += 1
        try:
            kind, key = kind_of(message.subject)
        except InvalidSubject:
            kind, key = None, ()
        stored = Stored(
            self.last_sequence, self._now(), message.subject, message.body, dict(message.headers), kind, key
        )
        self._stored[stored.sequence] = stored
        self._by_subject.setdefault(stored.subject, []).append(stored.sequence)
        if kind is not None:
            self._subjects_of.setdefault(kind.name, {})[stored.subject] = None
        return stored

    def purge(self, subject: str, below: int) -> None:
        """Remove the messages of one subject whose sequence is below that one."""
        kept = []
        for sequence in self._by_subject.get(subject, []):
            if sequence < below:
                del self._stored[sequence]
            else:
                kept.append(sequence)
        self._by_subject[subject] = kept

    def get(self, sequence: int) -> Stored | None:
        return self._stored.get(sequence)

    def last_of(self, subject: str) -> int:
        """The sequence of the last message of a subject, 0 without one."""
        sequences = self._by_subject.get(subject)
        return sequences[-1] if sequences else 0

    def subjects(self) -> list[str]:
        """Every subject that has a message."""
        return [subject for subject, sequences in self._by_subject.items() if sequences]

    def versions_of(self, subject: str) -> list[Stored]:
        return [self._stored[sequence] for sequence in self._by_subject.get(subject, [])]

    def last_per_subject(self, kinds: Iterable[Kind]) -> list[int]:
        """The last sequence of every subject of these kinds, in order: what a new follower is sent first."""
        subjects = (subject for kind in kinds for subject in self._subjects_of.get(kind.name, ()))
        return sorted(self._by_subject[subject][-1] for subject in subjects if self._by_subject[subject])

    def messages(self, after: int = 0) -> Iterable[Stored]:
        """Every message that is still there, in order."""
        for sequence in range(after + 1, self.last_sequence + 1):
            stored = self._stored.get(sequence)
            if stored is not None:
                yield stored

    def read(self, stored: Stored) -> Version:
        """The version in a message, decoded once for all readers. Raises `InvalidRecord` or `InvalidSubject`."""
        version = self._read.get(stored.sequence)
        if version is None:
            version = self._read[stored.sequence] = version_or_error(stored)
        if isinstance(version, Version):
            return version
        raise version

    def newest_readable(self, subject: str) -> Version | None:
        """What rules on a subject: its newest version that can be read."""
        for stored in reversed(self.versions_of(subject)):
            try:
                return self.read(stored)
            except (InvalidRecord, InvalidSubject):
                continue
        return None

    def record(self, kind: Kind, key: Key) -> BaseModel | None:
        """What stands on one subject now; None where it is deleted, unreadable, or nothing ever was."""
        sequence = self.last_of(kind.subject(*key))
        if not sequence:
            return None
        try:
            return self.read(self._stored[sequence]).record
        except (InvalidRecord, InvalidSubject):
            return None

    def current(self, kind: Kind) -> dict[Key, BaseModel]:
        """What stands on the subjects of a kind now, unreadable ones left out: for checkers and simulated doers."""
        found: dict[Key, BaseModel] = {}
        for sequence in self.last_per_subject([kind]):
            try:
                version = self.read(self._stored[sequence])
            except (InvalidRecord, InvalidSubject):
                continue
            if version.record is not None:
                found[version.key] = version.record
        return found
