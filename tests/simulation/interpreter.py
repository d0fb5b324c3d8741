"""One instance of a service: follow → lead → fold → decide → commit → fold what was committed → settle.

It does what `shared.runtime.run` does, without a socket. `Flaws` takes single safeguards away, so that the tests can see
the invariants catch what each of them is there for.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Generic

from shared.errors import InvalidRecord, InvalidSubject
from shared.model.service import Term
from shared.runtime import encode
from shared.runtime.answers import NotStored, Refused, TermLost, Unknown
from shared.runtime.answers import Stored as StoredAnswer
from shared.runtime.clock import ServiceClock
from shared.runtime.encode import Outgoing
from shared.runtime.quarantine import is_well_formed
from shared.runtime.sequences import Sequences
from shared.service import Plan, Sample, Service, State, Version
from shared.subjects import DECISION, NOTICE, TERM

from .bus import Answer, outcome_of
from .follower import Follower
from .livelock import Commits
from .process import Process
from .restore import restoring
from .surroundings import NO_FLAWS, Flaws, Surroundings
from .wire import Message, Stored, commit, term_message

RETRY_SECONDS = (0.05, 0.25)
SAMPLES_SECONDS = 0.1
NEVER = float("inf")


class Instance(Process, Generic[State]):
    def __init__(
        self,
        service: Service[State],
        name: str,
        surroundings: Surroundings,
        flaws: Flaws = NO_FLAWS,
    ) -> None:
        super().__init__(name, surroundings.timeline)
        self.service = service
        self.log = surroundings.log
        self._bus = surroundings.bus
        self._leases = surroundings.leases
        self._random = surroundings.random
        self._flaws = flaws
        self.follower = Follower(self.log, self._random, (*service.reads, TERM))
        self._terms_of = (service.name,)
        self._batch = 0
        self._paused_at = 0.0
        self.longest_absence_seconds = NEVER
        self._reads = frozenset(service.reads)

    # -- life ---------------------------------------------------------------------------------------------------------

    def started(self) -> None:
        self.state: State = self.service.new_state()
        self.loaded = False
        self.term = 0
        self.leading = False
        self._tenure = 0
        self.in_flight = False
        self._look_at = NEVER
        self._wake_token = 0
        self._lease_revision = 0
        self._lease_acquired = 0
        self._lease_until = 0.0
        self._last_term = 0
        self._clock = ServiceClock()
        self.sequences = Sequences()
        self._unreadable: dict[str, Stored] = {}
        self._commits = Commits(self.name)
        self.follower.start(self, self._receive, self._caught_up)
        self.later(self._random.uniform(0, 0.5), self._tend_lease)

    def pause(self) -> None:
        super().pause()
        self._paused_at = self.timeline.seconds

    def resume(self) -> None:
        """What was purged meanwhile is never delivered: after a long absence the state is dropped and loaded anew."""
        away = self.timeline.seconds - self._paused_at if self.paused else 0.0
        super().resume()
        if away > self.longest_absence_seconds:
            self.later(0.01, self._load_anew)

    def _load_anew(self) -> None:
        self.crash()
        self.start()

    def stop(self) -> None:
        """Stop cleanly: the lease is given back, so that a standby takes over at once."""
        if self.up and not self.paused:
            self._step_down()
        self.crash()

    def now(self) -> datetime:
        return self._clock.now(self.timeline.seconds)

    @property
    def busy(self) -> bool:
        """Whether a commit is under way or there is something to decide."""
        return self.in_flight or bool(self._unreadable or self.service.decide(self.state, self.now()).decisions)

    # -- following ----------------------------------------------------------------------------------------------------

    def _receive(self, stored: Stored) -> None:
        self._clock.received(stored.at, self.timeline.seconds)
        self.sequences.received(self.follower.position)
        if stored.kind is TERM:
            self._receive_term(stored)
            return
        if stored.kind in (DECISION, NOTICE) and stored.key[:1] != self._terms_of:
            return
        try:
            version = self.log.read(stored)
        except (InvalidRecord, InvalidSubject):
            version = None
        if version is None or self._refused(version):
            self._receive_unreadable(stored)
        else:
            self._unreadable.pop(stored.subject, None)
            self._fold(version)
        self._look_soon()

    def _refused(self, version: Version) -> bool:
        kept = version.kind.keeper == self.service.name
        return kept and bool(self._why_refused(version))

    def _why_refused(self, version: Version) -> str:
        return self.service.refuses(self.state, version)

    def _fold(self, version: Version) -> None:
        if self.sequences.accept(version.kind.subject(*version.key), version.sequence):
            self.service.fold(self.state, version)

    def _receive_term(self, stored: Stored) -> None:
        if stored.key != self._terms_of:
            return
        self._last_term = stored.sequence
        if stored.sequence == self.term:
            self._clock.anchor(stored.at, self.timeline.seconds)
        if self.term and stored.sequence > self.term:
            self._step_down()
        else:
            self._begin()

    def _receive_unreadable(self, stored: Stored) -> None:
        """A bad message does not count; one that is the last at the load is replaced by the newest valid version."""
        assert stored.kind is not None
        if stored.kind.keeper == self.service.name:
            self._unreadable[stored.subject] = stored
        if not self.loaded and (version := self.log.newest_readable(stored.subject)):
            self.service.fold(self.state, version)

    def _caught_up(self) -> None:
        for version, _ in self.service.contradicted(self.state):
            stored = self.log.versions_of(version.kind.subject(*version.key))[-1]
            self._unreadable[stored.subject] = stored
        self.loaded = True
        self.sequences.received(self.follower.position)
        self._begin()

    def observe(self, sample: Sample) -> None:
        """Only a leader listens; a sample is no hurry."""
        if self.leading:
            self.service.observe(self.state, sample, self.now())
            self._look_soon(SAMPLES_SECONDS)

    # -- leading ------------------------------------------------------------------------------------------------------

    def _tend_lease(self) -> None:
        self.later(self._leases.ttl_seconds / 3, self._tend_lease)
        if self._lease_revision:
            self._renew()
        elif self.loaded:
            revision = self._leases.acquire(self.service.name, self.name)
            if revision is None:
                self.service.rehearse(self.state, self.now())
            else:
                self._hold(revision)
                self._lease_acquired = revision
                self._tenure += 1
                self.later(self._random.uniform(0, 0.02), partial(self._open_term, self._tenure))

    def _renew(self) -> None:
        if self._random.random() >= self._bus.rates.lost_renewal:
            revision = self._leases.renew(self.service.name, self._lease_revision)
            if revision is None:
                self._step_down()
                return
            self._hold(revision)
        if not self._holds_lease():
            self._step_down()

    def _hold(self, revision: int) -> None:
        self._lease_revision = revision
        self._lease_until = self.timeline.seconds + 0.9 * self._leases.ttl_seconds

    def _holds_lease(self) -> bool:
        return bool(self._lease_revision) and self.timeline.seconds < self._lease_until

    def _open_term(self, tenure: int) -> None:
        """Only the last one to publish here can commit. A candidate that has lost its lease does not try."""
        if tenure != self._tenure:
            return
        if not self._holds_lease():
            self._step_down()
            return
        term = Term(holder=self.name, lease_revision=self._lease_acquired, opened_at=self.timeline.now)
        message = term_message(self.service.name, term, self._last_term)
        self._bus.request([message], self.guard(partial(self._term_answered, tenure)))

    def _term_answered(self, tenure: int, answer: Answer) -> None:
        if tenure != self._tenure:
            return
        outcome = outcome_of(answer, 1, has_expectations=True)
        if isinstance(outcome, StoredAnswer):
            self.term = outcome.first
            self._begin()
        else:
            self.later(self._random.uniform(*RETRY_SECONDS), partial(self._open_term, tenure))

    def _begin(self) -> None:
        """Decide, once the own term message has been received: everything before it is known by then."""
        followed = self.follower.position >= self.term or not self._flaws.await_term
        if self.term and not self.leading and self.loaded and followed and self._last_term <= self.term:
            self.leading = True
            self.service.attend(self.state, self.now())
            self._look_soon()

    def _step_down(self) -> None:
        if self._lease_revision:
            self._leases.release(self.service.name, self._lease_revision)
        self._lease_revision = 0
        self._end_term()

    def _end_term(self) -> None:
        self.term = 0
        self.leading = self.in_flight = False
        self._tenure += 1

    # -- deciding -----------------------------------------------------------------------------------------------------

    def _look_soon(self, seconds: float = 0.0005) -> None:
        """A look that is planned earlier serves; one that is planned later is brought forward."""
        at = self.timeline.seconds + seconds
        if self.leading and at < self._look_at:
            self._look_at = at
            self.later(seconds, partial(self._look, at))

    def _wake(self, at: datetime | None) -> None:
        self._wake_token += 1
        if at is not None:
            self.later((at - self.now()).total_seconds() + 0.001, partial(self._woken, self._wake_token))

    def _woken(self, token: int) -> None:
        if token == self._wake_token:
            self._look_soon()

    def _look(self, at: float) -> None:
        if at != self._look_at:
            return
        self._look_at = NEVER
        if not self.leading or self.in_flight:
            return
        if not self._holds_lease():
            self._step_down()
            return
        now = self.now()
        if self._clock.jumped():
            self.service.attend(self.state, now)
        for stored in list(self._unreadable.values()):
            answer = restoring(self.log, self.service.name, stored, self._why_refused, now)
            if answer:
                self._commit(answer, partial(self._restored, stored, answer, now))
                return
            del self._unreadable[stored.subject]  # somebody has corrected it; the log will show
        plan = self.service.decide(self.state, now)
        if plan.decisions:
            outgoing = encode.messages(self.service.name, plan, self.sequences.read_sequence, now)
            self._commit(outgoing, partial(self._committed, plan, outgoing, now))
        else:
            self.service.settle(self.state, plan, now)
            self._wake(plan.wake_at)

    def _commit(self, outgoing: Sequence[Outgoing], stored: Callable[[range], None]) -> None:
        """One at a time. The process may be stopped between the decision and its sending: hence the fence."""
        assert outgoing, f"{self.name} has decided something that changes and explains nothing"
        self.in_flight = True
        self._commits.count(self.timeline.seconds)
        pieces = [outgoing] if self._flaws.atomic else [[item] for item in outgoing]
        self._batch += 1
        name = f"{self.name}-{self.term}-{self._batch}"
        batches = [commit(self.service.name, self.term, piece, name, fence=self._flaws.fence) for piece in pieces]
        answered = partial(self._answered, self._tenure, outgoing, stored)
        self.later(self._random.uniform(0.0001, 0.004), partial(self._send, batches, self.guard(answered)))

    def _send(self, batches: Sequence[Sequence[Message]], answered: Callable[[Answer], None]) -> None:
        for batch in batches[:-1]:
            self._bus.request(batch, lambda answer: None)
        self._bus.request(batches[-1], answered)

    def _answered(
        self, tenure: int, outgoing: Sequence[Outgoing], stored: Callable[[range], None], answer: Answer
    ) -> None:
        if tenure != self._tenure:
            return
        self.in_flight = False
        again = self._random.uniform(*RETRY_SECONDS)
        match outcome_of(answer, len(outgoing), any(item.expected is not None for item in outgoing)):
            case StoredAnswer() as outcome:
                stored(outcome.sequences)
                self._look_soon()
            case TermLost():
                self._step_down()
            case Refused():
                self.later(again, self._look_soon)
            case NotStored():
                self.in_flight = True
                self.later(again, partial(self._once_more, tenure, outgoing, stored))
            case Unknown():
                self._end_term()
                self.later(again, partial(self._open_term, self._tenure))

    def _once_more(self, tenure: int, outgoing: Sequence[Outgoing], stored: Callable[[range], None]) -> None:
        if tenure == self._tenure:
            self._commit(outgoing, stored)

    def _committed(self, plan: Plan, outgoing: Sequence[Outgoing], now: datetime, sequences: range) -> None:
        self._fold_own(outgoing, now, sequences)
        self.service.settle(self.state, plan, now)

    def _restored(self, bad: Stored, outgoing: Sequence[Outgoing], now: datetime, sequences: range) -> None:
        self._fold_own(outgoing, now, sequences)
        if self._unreadable.get(bad.subject) is bad:
            del self._unreadable[bad.subject]

    def _fold_own(self, outgoing: Sequence[Outgoing], now: datetime, sequences: range) -> None:
        """Own records are folded at the sequences of the acknowledgement; when they are followed they change nothing."""
        self.sequences.acknowledged(sequences)
        for item, sequence in zip(outgoing, sequences, strict=True):
            if item.kind in self._reads and (item.restores is None or is_well_formed(item.subject)):
                self._fold(item.version(sequence, now))
