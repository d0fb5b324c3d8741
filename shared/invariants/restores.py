"""11: what was rejected is answered by the last good version, as it was, and by nothing else.

A message with `Steer-Restores` repeats the version at that sequence, and, where what it answers could not be read, the
newest one that could; 0 is a tombstone, where there never was one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from shared.invariants.logged import Breach, Logged
from shared.invariants.moment import Moment
from shared.runtime.encode import RESTORES, SERVICE, is_tombstone, sequence_in
from shared.subjects import Owner


class _Good(NamedTuple):
    """A version that can be read: the sequence at which it was first stored, and its body, None for a tombstone."""

    origin: int
    body: bytes | None


class RestoresRepeat:
    def __init__(self) -> None:
        self._good: dict[str, _Good] = {}
        self._bodies: dict[str, dict[int, bytes | None]] = {}
        self._answers_bad: set[str] = set()

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for message in moment.messages:
            if message.version is None:
                self._answers_bad.add(message.subject)
            elif message.version.kind.owner is Owner.USERS:
                if RESTORES in message.headers and SERVICE in message.headers:
                    for detail in self._restored(message):
                        yield Breach("11", message.sequence, message.subject, detail)
                self._take(message)

    def _restored(self, message: Logged) -> Iterator[str]:
        origin, known = sequence_in(message.headers, RESTORES), self._bodies.get(message.subject, {})
        good = self._good.get(message.subject, _Good(0, None))
        if origin and origin in known and _body(message) != known[origin]:
            yield f"is not the version of {origin}, which it says that it restores"
        if not origin and not is_tombstone(message.headers):
            yield "restores nothing, and is no tombstone"
        forgotten = not origin and good.body is None  # a tombstone that was trimmed is answered by one like it
        if message.subject in self._answers_bad and origin != good.origin and not forgotten:
            yield f"restores {origin}, though {good.origin} is the newest version that can be read"

    def _take(self, message: Logged) -> None:
        subject, origin = message.subject, sequence_in(message.headers, RESTORES) or message.sequence
        self._answers_bad.discard(subject)
        self._good[subject] = _Good(origin, _body(message))
        self._bodies.setdefault(subject, {})[origin] = _body(message)


def _body(message: Logged) -> bytes | None:
    return None if is_tombstone(message.headers) else message.body
