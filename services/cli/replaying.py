"""Deciding again what the log says was decided: pure, over the messages of the log.

The state of a service at a decision is what it had read: of each record it reads the last version up to the decision's
`read_sequence`, and its own records before the commit, whatever their sequence. With the decision's `now`, the same
state gives the same decision, byte for byte, and the same changes beside it. A decision that answers a request carries
the request. One that used telemetry carries what it used, but not all that was heard: it is counted and left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from shared.errors import InvalidRecord, InvalidSubject
from shared.model.service import DecisionRecord
from shared.runtime import encode
from shared.runtime.commands import REQUEST
from shared.runtime.encode import sequence_in
from shared.runtime.follower import Message
from shared.runtime.records import version_of
from shared.service import Plan, Service, Version
from shared.subjects import DECISION, NOTICE, TERM

BATCH_SEQUENCE = "Nats-Batch-Sequence"
MOST_PATHS = 10


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision: how it differs when it is made again, path by path. None = left out, empty = not at all."""

    sequence: int
    subject: str
    differences: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class _Commit:
    """What was stored together: `first` is the sequence of its first message."""

    first: int
    bodies: Mapping[str, bytes]
    decisions: tuple[tuple[Message, DecisionRecord], ...]


class History:
    """What one service has read and written, in the order of the log."""

    def __init__(self, service: Service[Any], messages: Iterable[Message]) -> None:
        self.service = service
        self._versions: list[tuple[bool, Version]] = []
        self._own: dict[int, list[Message]] = {}
        for message in messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        headers = message.headers or {}
        own = headers.get(encode.SERVICE) == self.service.name
        if own:
            first = message.sequence - max(sequence_in(headers, BATCH_SEQUENCE), 1) + 1
            self._own.setdefault(first, []).append(message)
        try:
            version = version_of(message)
        except (InvalidRecord, InvalidSubject):
            return  # nobody folds it
        foreign = version.kind in (DECISION, NOTICE) and version.key[0] != self.service.name
        if version.kind in self.service.reads and version.kind is not TERM and not foreign:
            self._versions.append((own, version))

    def replay(self, at_most: int) -> Iterator[Replayed]:
        """The newest decisions, made again; in the order of the log."""
        chosen: list[_Commit] = []
        count = 0
        for first in sorted(self._own, reverse=True):
            commit = _commit(first, self._own[first])
            if commit.decisions and count < at_most:
                count += len(commit.decisions)
                chosen.append(commit)
        for commit in reversed(chosen):
            yield from self._again(commit)

    def _again(self, commit: _Commit) -> Iterator[Replayed]:
        plain = [record for _, record in commit.decisions if not record.observation]
        whole = self._planned(commit, plain[0]) if plain else {}
        for message, record in commit.decisions:
            if REQUEST in record.observation:
                again = self._answered(commit, record)
            elif record.observation:
                yield Replayed(message.sequence, message.subject, None)
                continue
            else:
                again = whole
            subjects = (message.subject, *record.changes)
            found = [each for subject in subjects for each in _differs(subject, commit.bodies, again)]
            yield Replayed(message.sequence, message.subject, tuple(found[:MOST_PATHS]))

    def _planned(self, commit: _Commit, record: DecisionRecord) -> dict[str, bytes]:
        plan = self.service.decide(self._state(commit, record), record.now)
        return _bodies(self.service.name, plan, record)

    def _answered(self, commit: _Commit, record: DecisionRecord) -> dict[str, bytes]:
        request = dict(record.observation[REQUEST])
        command = self.service.commands.get(request.pop("verb", ""))
        decision = command.decide(self._state(commit, record), request, record.now) if command is not None else None
        if decision is None:
            return {}
        asked = decision._replace(observation=record.observation)
        return _bodies(self.service.name, Plan((asked,)), record)

    def _state(self, commit: _Commit, record: DecisionRecord) -> Any:
        last: dict[str, Version] = {}
        for own, version in self._versions:
            if version.sequence >= commit.first:
                break
            if own or version.sequence <= record.read_sequence:
                last[version.kind.subject(*version.key)] = version
        state = self.service.new_state()
        for version in sorted(last.values(), key=lambda version: version.sequence):
            self.service.fold(state, version)
        return state


def _commit(first: int, messages: Sequence[Message]) -> _Commit:
    decisions = []
    for message in messages:
        try:
            record = version_of(message).record
        except (InvalidRecord, InvalidSubject):
            continue
        if isinstance(record, DecisionRecord):
            decisions.append((message, record))
    return _Commit(first, {message.subject: message.body for message in messages}, tuple(decisions))


def _bodies(service: str, plan: Plan, record: DecisionRecord) -> dict[str, bytes]:
    messages = encode.messages(service, plan, record.read_sequence, record.now)
    return {message.subject: message.body for message in messages}


def _differs(subject: str, stored: Mapping[str, bytes], again: Mapping[str, bytes]) -> list[str]:
    """What differs between a message and the one that is made again, as texts."""
    before, after = stored.get(subject), again.get(subject)
    if before == after:
        return []
    if before is None or after is None:
        return [f"{subject}: {'only when made again' if before is None else 'not made again'}"]
    paths = list(_paths("", _value(before), _value(after)))
    return [f"{subject}: {each}" for each in paths or ["the same values in other bytes"]]


def _value(body: bytes) -> Any:
    return orjson.loads(body) if body else None


def _paths(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _paths(f"{path}.{name}".lstrip("."), before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _paths(f"{path}.{number}", one, other)
    elif before != after:
        yield f"{path}: {_short(before)} in the log, {_short(after)} again"


def _short(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}..."
