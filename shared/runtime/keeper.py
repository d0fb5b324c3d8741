"""Trimming the log: per record, versions older than the newest valid one that is itself older than the window.

So the present value stays, and so does the state at any sequence inside the window. Only the scheduler's leader does it,
always by `PURGE {filter, seq}` on one subject; the last version of a record is never purged unless it is a tombstone
that has outlived the window, and nothing else in the log carries its key.

The keeper walks the log from its beginning, a bounded piece per round, up to what is younger than the window, and keeps
for each subject the newest old valid version it has passed. A leader that has just started walks from the beginning.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from shared import subjects
from shared.errors import InvalidSubject, SteerError
from shared.runtime.bus import Bus
from shared.runtime.encode import is_tombstone
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.jetstream import api
from shared.runtime.quarantine import problems_of
from shared.runtime.streams import world_subjects
from shared.subjects import STREAM

log = structlog.get_logger(__name__)

KEEPER = "scheduler"
ROUND_MESSAGES = 1000
NEEDED_PER_ROUND = 100
BUSY_SECONDS = 1.0
IDLE_SECONDS = 60.0
READ_SECONDS = 2.0
OUTLIVES = frozenset({subjects.ACTIVE, subjects.DECISION, subjects.NOTICE})
"""Kinds that carry the key of another record and do not need it."""


@dataclass(frozen=True, slots=True)
class _Old:
    """The newest old valid version of a subject; `purged` is the sequence up to which it was trimmed."""

    sequence: int
    tombstone: bool


class Keeper:
    """`run` for ever; `may` is asked before each purge, `now` is the clock of the service."""

    def __init__(
        self,
        bus: Bus,
        may: Callable[[], bool],
        now: Callable[[], datetime],
        on_trimmed: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._bus = bus
        self._may = may
        self._now = now
        self._on_trimmed = on_trimmed
        self._window = timedelta(seconds=bus.settings.window_seconds)
        self._next = 1
        self._newest: dict[str, _Old] = {}
        self._needed: dict[str, None] = {}

    async def run(self) -> None:
        while True:
            more = False
            if self._may():
                try:
                    more = await self.round()
                except SteerError as error:
                    log.warning("trimming failed; trying again", reason=str(error))
                except Exception:  # a fault at one message must not end the decisions of the leader beside it
                    log.exception("a fault in trimming; trying again")
            elif self._newest:
                self._next, self._newest, self._needed = 1, {}, {}
            await asyncio.sleep(BUSY_SECONDS if more else IDLE_SECONDS)

    async def round(self) -> bool:
        """Walk one piece of the log and trim what it shows; whether more is left that is older than the window."""
        horizon = self._now() - self._window
        messages, more = await self._walk(horizon)
        touched = dict.fromkeys(list(self._needed)[:NEEDED_PER_ROUND])
        for message in messages:
            if self._pass(message):
                touched[message.subject] = None
        for subject in touched:
            if not self._may():
                return False
            await self._trim(subject, self._newest[subject])
        return more

    async def _walk(self, horizon: datetime) -> tuple[list[Message], bool]:
        """The next messages that are older than the horizon."""
        follower = Follower(self._bus, world_subjects(), start=self._next)
        found: list[Message] = []
        await follower.start()
        try:
            while len(found) < ROUND_MESSAGES:
                batch = await follower.next(READ_SECONDS)
                if isinstance(batch, Restarted):
                    return [], True
                old = [message for message in batch if message.at < horizon]
                found += old
                if len(old) < len(batch) or follower.caught_up or not batch:
                    break
        finally:
            await follower.stop()
        more = len(found) > ROUND_MESSAGES
        found = found[:ROUND_MESSAGES]
        if found:
            self._next = found[-1].sequence + 1
        return found, more or len(found) == ROUND_MESSAGES

    def _pass(self, message: Message) -> bool:
        """Note an old version; whether there is something to purge now."""
        subject = message.subject
        if any(token in ("*", ">") for token in subject.split(".")) or problems_of(message):
            return False  # as a filter it would mean other subjects; or it is not what rules
        earlier = self._newest.get(subject)
        tombstone = is_tombstone(message.headers)
        self._newest[subject] = _Old(message.sequence, tombstone)
        return earlier is not None or tombstone

    async def _trim(self, subject: str, old: _Old) -> None:
        needed = old.tombstone and await self._is_needed(subject)
        gone = old.tombstone and not needed
        self._needed.pop(subject, None)
        if needed:
            self._needed[subject] = None  # looked at again, after the others
        await self._purge(subject, old.sequence + 1 if gone else old.sequence)
        if gone:
            del self._newest[subject]

    async def _purge(self, subject: str, below: int) -> None:
        answer = await api(self._bus, f"STREAM.PURGE.{STREAM}", {"filter": subject, "seq": below})
        purged = int(answer.get("purged", 0))
        if purged:
            self._on_trimmed(purged)

    async def _is_needed(self, subject: str) -> bool:
        """Whether another record carries this key: its deletion may still have to be known."""
        with contextlib.suppress(InvalidSubject):
            kind, key = subjects.kind_of(subject)
            if kind.owner is not subjects.Owner.USERS:
                return False
            for pattern in subjects.carrying(key):
                if await self._others(pattern, subject):
                    return True
        return False

    async def _others(self, pattern: str, subject: str) -> bool:
        info = await api(self._bus, f"STREAM.INFO.{STREAM}", {"subjects_filter": pattern})
        for other in info["state"].get("subjects") or {}:
            if other == subject:
                continue
            with contextlib.suppress(InvalidSubject):
                if subjects.kind_of(other)[0] not in OUTLIVES:
                    return True
        return False
