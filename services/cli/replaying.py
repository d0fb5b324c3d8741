"""Deciding again what the log says was decided: pure, over the commits of the log in their order.

The state of a service at a decision is what it had read: of each record it reads the last version up to the decision's
`read_sequence`, and its own records before the commit, whatever their sequence. What it had heard comes from the
`observation`, and the time from `now`: with them the same state gives the same decision, byte for byte, and the same
changes beside it. A decision that answers a request carries the request.

One state is led through the whole log, as one service that never restarted would have led it, but for its terms: each
begins with a state that is loaded anew. What it writes counts as read when it is written, at the time of its decision.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from shared.errors import SteerError
from shared.invariants.logged import Logged
from shared.model.service import DecisionRecord
from shared.runtime import encode
from shared.runtime.commands import REQUEST
from shared.runtime.encode import sequence_in
from shared.runtime.sequences import Sequences
from shared.service import Plan, Service, Version
from shared.subjects import DECISION, NOTICE, TERM

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PAUSE = timedelta(milliseconds=5)
"""Longer than a leader takes to look at what it has just read."""

MOST_PATHS = 10
MOST_PASSES = 1000
"""A pass looks at a bounded number of things: after a load, many may find nothing before the one that decides."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision: how it differs when it is made again, path by path. None = left out, empty = not at all."""

    sequence: int
    subject: str
    differences: tuple[str, ...] | None


class Replay:
    """One service in the course of the log: `take` every commit, and every message that was published alone.

    Decisions made before `whole_since` are left out: of what they had read, some was trimmed.
    """

    def __init__(self, service: Service[Any], whole_since: datetime | None = None) -> None:
        self.service = service
        self._whole_since = whole_since
        self._reads = frozenset(service.reads) - {TERM}
        self._last: dict[str, Version] = {}
        self._unread: deque[Version] = deque()
        self._term = 0
        self._read_at = EPOCH
        self._load()

    def take(self, commit: Sequence[Logged]) -> list[Replayed]:
        """The decisions in a commit, made again."""
        own = commit[0].headers.get(encode.SERVICE) == self.service.name
        if not own:
            self._unread += [version for each in commit if (version := self._read(each)) is not None]
            return []
        term = sequence_in(commit[0].headers, encode.TERM)
        if term > self._term:
            self._term = term
            self._load()
        made = [(each, record) for each in commit if (record := _decision(each)) is not None]
        found, plan = self._again(commit, made) if made else ([], None)
        for each in commit:
            if (version := self._read(each)) is not None:
                self._last[each.subject] = version
                self._fold(version._replace(at=made[0][1].now) if made else version)
        if plan is not None and not self.service.observes:
            self.service.settle(self._state, plan, made[0][1].now)
        return found

    # -- the state ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """As a leader has it that begins its term: the last version of each record, at the time of its storing."""
        self._state: Any = self.service.new_state()
        self._sequences = Sequences()
        for version in sorted(self._last.values(), key=lambda version: version.sequence):
            self._fold(version)

    def _read(self, message: Logged) -> Version | None:
        """What the service reads of a message; None where that is nothing."""
        version = message.version
        if version is None or version.kind not in self._reads:
            return None
        foreign = version.kind in (DECISION, NOTICE) and version.key[0] != self.service.name
        return None if foreign else version

    def _read_up_to(self, sequence: int) -> None:
        while self._unread and self._unread[0].sequence <= sequence:
            version = self._unread.popleft()
            if version.at - self._read_at >= PAUSE:
                self._look()
            self._read_at = version.at
            subject = version.kind.subject(*version.key)
            if subject not in self._last or self._last[subject].sequence < version.sequence:
                self._last[subject] = version
            self._fold(version)

    def _look(self) -> None:
        """The log paused, and the service looked at what it had read: where it found nothing, it looks no second time."""
        if not self.service.observes:
            plan = self._pass(self._read_at)
            if not plan.decisions:
                self.service.settle(self._state, plan, self._read_at)

    def _fold(self, version: Version) -> None:
        if self._sequences.accept(version.kind.subject(*version.key), version.sequence):
            self.service.fold(self._state, version)

    # -- the decisions --------------------------------------------------------------------------------------------------

    def _again(
        self, commit: Sequence[Logged], made: Sequence[tuple[Logged, DecisionRecord]]
    ) -> tuple[list[Replayed], Plan | None]:
        """The decisions, and the pass that made them where it is the one that made the commit."""
        record = made[0][1]
        self._read_up_to(record.read_sequence)
        if self._whole_since is not None and record.now < self._whole_since:
            return [Replayed(each.sequence, each.subject, None) for each, _ in made], None
        plan = self._answered(record) if REQUEST in record.observation else self._planned(commit, record)
        before = {each.subject: each.body for each in commit}
        again = _bodies(self.service.name, plan, record)
        found = []
        for each, decided in made:
            subjects = (each.subject, *decided.changes)
            texts = [text for subject in subjects for text in differs(subject, before, again)]
            found.append(Replayed(each.sequence, each.subject, tuple(texts[:MOST_PATHS])))
        return found, plan if before == again else None

    def _planned(self, commit: Sequence[Logged], record: DecisionRecord) -> Plan:
        self.service.recall(self._state, [each.version for each in commit if each.version is not None], record.now)
        return self._pass(record.now)

    def _pass(self, now: datetime) -> Plan:
        """The first pass that decides something, or the last one."""
        for _ in range(MOST_PASSES):
            plan = self.service.decide(self._state, now)
            if plan.decisions or plan.wake_at is None or plan.wake_at > now:
                break
            self.service.settle(self._state, plan, now)
        return plan

    def _answered(self, record: DecisionRecord) -> Plan:
        request = dict(record.observation[REQUEST])
        command = self.service.commands.get(request.pop("verb", ""))
        try:
            decision = command.decide(self._state, request, record.now) if command is not None else None
        except SteerError:
            decision = None  # refused, when asked again
        if decision is None:
            return Plan()
        return Plan((decision._replace(observation={**decision.observation, REQUEST: record.observation[REQUEST]}),))


def _decision(message: Logged) -> DecisionRecord | None:
    record = message.version.record if message.version is not None else None
    return record if isinstance(record, DecisionRecord) else None


def _bodies(service: str, plan: Plan, record: DecisionRecord) -> dict[str, bytes]:
    messages = encode.messages(service, plan, record.read_sequence, record.now)
    return {message.subject: message.body for message in messages}


def differs(subject: str, stored: Mapping[str, bytes], again: Mapping[str, bytes]) -> list[str]:
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
