"""Leading: open a term, decide, commit, fold what was committed, settle; and end the term when it is lost.

    lease held → term opened → own term message received → attend → decide → commit → … → term lost, lease given back

One `step` is one pass at most. A pass is decided on the state as it is, and whatever it planned counts only once the log
has stored it: a plan that was not stored is forgotten, and the state is as if it had never been made.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime

import structlog

from shared.runtime import encode, reactions, term
from shared.runtime.answers import NotStored, Outcome, Refused, Stored
from shared.runtime.bus import Bus
from shared.runtime.commands import Commands
from shared.runtime.commit import Committer
from shared.runtime.encode import Outgoing
from shared.runtime.lease import Lease, monotonic
from shared.runtime.metrics import Metrics
from shared.runtime.reactions import Reaction
from shared.runtime.repair import Repair
from shared.runtime.telemetry import Telemetry
from shared.runtime.world import World
from shared.service import Decision, Plan

log = structlog.get_logger(__name__)

RETRIES = 40
RETRY_SECONDS = (0.05, 1.0)
DECIDE_AGAIN_SECONDS = 0.05
UNREAD_SECONDS = 5.0
"""The longest wait for a term that was opened by another instance to be read."""

SAMPLES_SECONDS = 0.1
"""Telemetry asks for a look at most this often."""


class Leader:
    """`step` after each batch of the log; `pause` says how long nothing is due. `term` is 0 without one."""

    def __init__(
        self, bus: Bus, world: World, lease: Lease, committer: Committer, metrics: Metrics, wake: Callable[[], None]
    ) -> None:
        self._world = world
        self._service = world.service
        self._lease = lease
        self._committer = committer
        self._metrics = metrics
        self._wake = wake
        self._telemetry = Telemetry(bus, world, self._sampled)
        self._commands = Commands(bus, world, wake)
        self.repair = Repair(bus, world, metrics.rejected.inc)
        self._look = True
        self._look_after = 0.0
        self._samples_at: float | None = None
        self._wake_at: datetime | None = None
        self._refused_after = -1
        self._attend = False
        self._notices_known = False
        self.in_doubt = False
        self.leading = False

    @property
    def term(self) -> int:
        return self._committer.term

    def look(self) -> None:
        """Something has changed: the next step decides."""
        self._look = True

    def attend_again(self) -> None:
        """The connection was away: telemetry is heard from now on."""
        self._attend = True
        self._wake()

    def pause(self) -> float | None:
        """Seconds until the next step is due without a record; None = when one comes."""
        if not self._lease.held:
            return None
        if not self.leading:
            return DECIDE_AGAIN_SECONDS if not self.term else None
        waits = [self.repair.seconds_until_due()]
        reading = monotonic()
        if self._look:
            waits.append(max(0.0, self._look_after - reading))
        if self._samples_at is not None:
            waits.append(max(0.0, max(self._samples_at, self._look_after) - reading))
        if self._wake_at is not None:
            waits.append(self._world.clock.seconds_until(self._wake_at, reading))
        return min((wait for wait in waits if wait is not None), default=None)

    async def step(self) -> None:
        """Do what is due. The log has been loaded."""
        if not self._lease.held:
            await self.end("the lease is not held")
        elif self.term and self._world.last_term > self.term:
            await self.end(f"term {self._world.last_term} was opened by another instance")
            await self._lease.give_back()
        elif not self.term:
            await self._open()
        elif not self.leading and self._world.last_term == self.term:
            await self._begin()
        elif self.leading:
            await self._lead()

    async def end(self, reason: str) -> None:
        """Stop deciding. What is stored is stored; nothing else happened."""
        self._stop_deciding(reason)
        await self._telemetry.stop()
        await self._commands.stop()

    async def close(self) -> None:
        """A clean stop: the lease is given back before anything else, so that the standby takes over at once."""
        self._stop_deciding("stopped")
        await self._lease.close()
        await self.end("stopped")
        await self._committer.close()

    def _stop_deciding(self, reason: str) -> None:
        if self.term:
            log.info("the term has ended", service=self._service.name, term=self.term, reason=reason)
        self._committer.term = 0
        self.leading = False
        self._metrics.leader.set(0)

    # -- the term -------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        if monotonic() < self._look_after and self._world.last_term == self._refused_after:
            return
        last_term = self._refused_after = self._world.last_term
        outcome = await term.open_term(self._committer, self._service.name, self._lease.holder, self._lease, last_term)
        if isinstance(outcome, Stored):
            self._metrics.terms.inc()
        elif isinstance(outcome, Refused):  # by a term among what is still to be read
            self._look_after = monotonic() + UNREAD_SECONDS
        elif outcome is not None:
            log.info("no term was opened", service=self._service.name, outcome=repr(outcome))
            await self._committer.close()
            self._look_after = monotonic() + random.uniform(*RETRY_SECONDS) / 2

    async def _begin(self) -> None:
        """The own term message has come back: everything before it is known, so deciding may begin."""
        self._world.anchor()
        await self._telemetry.start()
        await self._commands.start()
        self.leading, self.in_doubt = True, False
        self._look, self._look_after, self._wake_at = True, 0.0, None
        self._attend = True
        self._notices_known = False
        self._metrics.leader.set(1)
        log.info("leading", service=self._service.name, term=self.term, position=self._world.sequences.read_sequence)
        await self._lead()

    # -- deciding -------------------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        world = self._world
        if self._attend or world.clock.jumped():
            self._attend = False
            async with world.lock.writer:
                self._service.attend(world.state, world.clock.now(monotonic()))
            self._look = True
        for message in self.repair.due():
            if not self.leading:
                return
            await self.repair.answer(message, world.clock.now(monotonic()), self._commit)
        if self.leading and world.corrected:
            await self.repair.withdraw(world.clock.now(monotonic()), self._commit)
        await self._commands.round(self._command)
        if self.leading and self._is_due():
            await self._pass()
            await self._commands.round(self._command)
        if self.leading and not self._notices_known and not self._look:
            await self.repair.begin()  # not urgent: only when nothing else is due
            self._notices_known = True

    def _is_due(self) -> bool:
        reading = monotonic()
        sampled = self._samples_at is not None and reading >= self._samples_at
        if (self._look or sampled) and reading >= self._look_after:
            return True
        return self._wake_at is not None and self._world.clock.now(reading) >= self._wake_at

    async def _pass(self) -> None:
        world, service = self._world, self._service
        self._look, self._samples_at = False, None
        now = world.clock.now(monotonic())
        started = monotonic()
        plan = service.decide(world.state, now)
        self._metrics.decide_seconds.observe(monotonic() - started)
        if not plan.decisions:
            await self._settle(plan, [], range(0), now)
            self._look = self._look or plan.wake_at == now  # more is left
            return
        self._look = True  # one plan may make room for another; and one that is not stored is made anew
        messages = encode.messages(service.name, plan, world.sequences.read_sequence, now)
        if not messages:
            await self._settle(plan, [], range(0), now)
            return
        outcome = await self._send(messages)
        if isinstance(outcome, Stored):
            await self._settle(plan, messages, outcome.sequences, now)
            self._metrics.decisions.inc(len(plan.decisions))

    async def _settle(self, plan: Plan, messages: list[Outgoing], sequences: range, now: datetime) -> None:
        world = self._world
        async with world.lock.writer:
            if messages:
                world.fold_own(messages, sequences, now)
            self._service.settle(world.state, plan, now)
        self._wake_at = plan.wake_at

    async def _commit(self, messages: list[Outgoing], now: datetime) -> Outcome:
        """Commit what is not a plan, and fold it."""
        outcome = await self._send(messages)
        if isinstance(outcome, Stored):
            async with self._world.lock.writer:
                self._world.fold_own(messages, outcome.sequences, now)
            self._look = True
        return outcome

    async def _command(self, decision: Decision) -> Outcome:
        """Commit what a request led to."""
        now = self._world.clock.now(monotonic())
        plan = Plan((decision,))
        messages = encode.messages(self._service.name, plan, self._world.sequences.read_sequence, now)
        return await self._commit(messages, now)

    async def _send(self, messages: list[Outgoing]) -> Outcome:
        """Commit under the term; the same bytes again while nothing was stored and the lease is held."""
        delay = RETRY_SECONDS[0]
        outcome: Outcome = NotStored(0, "the lease is not held")
        for attempt in range(RETRIES):
            if not self._lease.held:
                break
            started = monotonic()
            outcome = await self._committer.commit(messages)
            self._metrics.committed(type(outcome).__name__)
            if not isinstance(outcome, NotStored):
                self._metrics.commit_seconds.observe(monotonic() - started)
                break
            if attempt == 0:
                log.warning("a commit was not stored; trying again", code=outcome.code, reason=outcome.reason)
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            delay = min(delay * 2, RETRY_SECONDS[1])
        await self._react(outcome)
        return outcome

    async def _react(self, outcome: Outcome) -> None:
        match reactions.to_outcome(outcome):
            case Reaction.RETRY | Reaction.DECIDE_AGAIN:
                self._look_after = monotonic() + DECIDE_AGAIN_SECONDS
            case Reaction.NEW_TERM:
                self.in_doubt = True
                await self._committer.close()
                await self.end(f"the outcome of a commit is unknown: {outcome}")
            case Reaction.LOSE_TERM:
                await self.end("another instance has opened a term")
                await self._lease.give_back()

    def _sampled(self) -> None:
        """Samples can wait a little for each other; a record does not wait for them."""
        if self._samples_at is None:
            self._samples_at = monotonic() + SAMPLES_SECONDS
            self._wake()
