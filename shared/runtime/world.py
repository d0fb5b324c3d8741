"""The state of a service and how the log gets into it: folding, once per version, and the load.

The one writer is the fold loop of the instance; queries read behind the same lock. A message that cannot be read changes
nothing; it is remembered, for the leader to answer. When the load ends, a subject whose last version cannot be read gets
its newest valid one, so that a state is the same whether it was loaded or followed.
"""

import gc
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import structlog
from aiorwlock import RWLock

from shared import codec, subjects
from shared.errors import InvalidRecord, InvalidSubject, Problem
from shared.runtime.clock import EPOCH, ServiceClock
from shared.runtime.encode import Outgoing, is_tombstone
from shared.runtime.follower import Message
from shared.runtime.lease import monotonic
from shared.runtime.quarantine import MAX_REJECTED_BODY_BYTES, is_well_formed, printable
from shared.runtime.records import is_plain, plain_version, version_of
from shared.runtime.sequences import Sequences
from shared.runtime.traces import Traces
from shared.service import Service
from shared.subjects import Kind

log = structlog.get_logger(__name__)

COLLECT_AFTER = (20_000, 20, 20)
"""Allocations, and collections of a generation, before the next one is collected."""

History = Callable[[str], Awaitable[list[Message]]]


class World:
    """`state` behind `lock`; `unreadable` holds the last bad message of each subject that has one.

    `watched` are subjects that were answered, with the sequence of the answer; a later valid version of one puts it
    into `corrected`.
    """

    def __init__(self, service: Service[Any]) -> None:
        self.service = service
        self.lock = RWLock()
        self.clock = ServiceClock()
        self.traces = Traces()
        self.term_subject = subjects.TERM.subject(service.name)
        self._reads = frozenset(service.reads)
        self._keeps = frozenset(service.keeps)
        self.reset()

    def reset(self) -> None:
        """Forget everything: a load follows. The garbage collector pauses for it, since a load only adds."""
        gc.unfreeze()
        self.state: Any = self.service.new_state()
        self.sequences = Sequences()
        self.unreadable: dict[str, Message] = {}
        self.watched: dict[str, int] = {}
        self.corrected: dict[str, None] = {}
        self.last_term = 0
        self.last_term_at = EPOCH, 0.0
        self.loaded = False
        self.folded = 0
        gc.collect()  # the state before, whose nodes and groups know each other
        gc.disable()

    def filters(self) -> list[str]:
        """What has to be followed."""
        kinds = dict.fromkeys((*self.service.reads, *self.service.keeps))
        return [*(self._filter(kind) for kind in kinds), self.term_subject]

    def _filter(self, kind: Kind) -> str:
        """Of what every service writes, only its own."""
        if kind in (subjects.DECISION, subjects.NOTICE):
            return f"{kind.prefix}.{self.service.name}.>"
        return kind.subject_filter

    async def fold(self, messages: Sequence[Message], position: int) -> bool:
        """Fold a batch; `position` is the follower's after it. True if there was anything new to decide upon."""
        before = self.folded
        if messages:
            reading = monotonic()
            async with self.lock.writer:
                for message in messages:
                    self._fold_one(message)
            self.clock.received(messages[-1].at, reading)
            if not self.loaded:  # a load comes in order too, though its position is known at its end only
                position = max(position, messages[-1].sequence)
        self.sequences.received(position)
        return self.folded != before

    def _fold_one(self, message: Message) -> None:
        subject, sequence = message.subject, message.sequence
        if subject == self.term_subject:
            self.last_term = max(self.last_term, sequence)
            self.last_term_at = message.at, monotonic()
            return
        if not self.sequences.accept(subject, sequence):  # an own record, folded when it was acknowledged
            return
        try:
            plain = is_plain(message.headers)
            version = plain_version(message) if plain else version_of(message)
            if version.kind in self._keeps and (reason := self.service.refuses(self.state, version)):
                raise InvalidRecord(subject, (Problem("", reason),))
        except (InvalidRecord, InvalidSubject) as error:
            self._set_aside(message, error)
            return
        if self.unreadable:
            self.unreadable.pop(subject, None)
        if self.watched and sequence > self.watched.get(subject, sequence):
            self.corrected[subject] = None
        if not plain:
            self.traces.received(sequence, message.headers)
        self.folded += 1
        if version.kind in self._reads:
            self.service.fold(self.state, version)

    def _set_aside(self, message: Message, error: Exception) -> None:
        if is_tombstone(message.headers):
            self.unreadable.pop(message.subject, None)  # the answer to a malformed subject
            return
        log.warning("a message cannot be read", sequence=message.sequence, error=printable(str(error))[:2000])
        # a flood of large ones must not fill memory
        kept = message._replace(body=message.body[:MAX_REJECTED_BODY_BYTES])
        self.unreadable[message.subject] = kept
        self.folded += 1

    def anchor(self) -> None:
        """The newest term is the own one: time counts from its timestamp."""
        self.clock.anchor(*self.last_term_at)

    async def finish_load(self, history: History) -> None:
        """The load has ended: replace what cannot be read by its newest valid version, then count as loaded."""
        for subject in list(self.unreadable):
            if subjects.kind_of(subject)[0] in self._reads:
                versions = await history(subject)
                async with self.lock.writer:
                    self._fold_newest_valid(versions)
        for version, reason in self.service.contradicted(self.state):
            assert version.record is not None
            subject = version.kind.subject(*version.key)
            message = Message(subject, version.sequence, version.at, None, codec.encode(version.record))
            self._set_aside(message, InvalidRecord(subject, (Problem("", reason),)))
        self.loaded = True
        self.end_load()
        gc.freeze()  # what was loaded stays: later collections need not look at it

    def end_load(self) -> None:
        """The collector works again, though seldom: records are no garbage, and have no cycles."""
        gc.set_threshold(*COLLECT_AFTER)
        gc.enable()

    def _fold_newest_valid(self, versions: Sequence[Message]) -> None:
        for message in reversed(versions):
            try:
                version = version_of(message)
            except (InvalidRecord, InvalidSubject):
                continue
            self.service.fold(self.state, version)
            return

    def fold_own(self, outgoing: Iterable[Outgoing], sequences: range, now: datetime) -> None:
        """Fold what was committed at the sequences of its acknowledgement. The caller holds the writer's lock.

        The server's timestamps are not in the acknowledgement: their versions carry `now`, the time of the decision.
        """
        for message, sequence in zip(outgoing, sequences, strict=True):
            if self._folds(message) and self.sequences.accept(message.subject, sequence):
                self.service.fold(self.state, message.version(sequence, now))
            self.traces.led_to(message.cause, sequence)
            bad = self.unreadable.get(message.subject)
            if bad is not None and bad.sequence < sequence:
                del self.unreadable[message.subject]
        self.sequences.acknowledged(sequences)

    def _folds(self, message: Outgoing) -> bool:
        """The answer to a malformed subject is a tombstone of what no record can be: it stays out of the state."""
        return message.kind in self._reads and (message.restores is None or is_well_formed(message.subject))
