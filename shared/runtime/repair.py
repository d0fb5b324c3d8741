"""Answering unreadable messages: the reading and writing that `quarantine` decides. Done by the leader only.

A flood of bad versions costs little: only the last one of a subject is answered, at most once a second, and a pass
answers a few subjects. The notice about a subject is deleted when a valid version of somebody else comes.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

import orjson
import structlog

from shared import codec, subjects
from shared.errors import InvalidRecord, SteerError
from shared.model.service import Notice
from shared.runtime import records
from shared.runtime.answers import Outcome, Stored
from shared.runtime.bus import Bus
from shared.runtime.encode import RESTORES, Outgoing, outgoing
from shared.runtime.follower import Message
from shared.runtime.lease import monotonic
from shared.runtime.quarantine import (
    NOTICE_KIND,
    Restoration,
    is_well_formed,
    notice,
    notice_key,
    plan_restoration,
    printable,
    problems_of,
    rejection,
    restoring,
)
from shared.runtime.world import World
from shared.service import Change
from shared.subjects import REJECTED_STREAM, Key

log = structlog.get_logger(__name__)

SUBJECTS_PER_PASS = 20
AGAIN_SECONDS = 1.0
MOST_REMEMBERED = 10_000

Commit = Callable[[list[Outgoing], datetime], Awaitable[Outcome]]


class Repair:
    """`round` answers what is due and says when to look again; `on_rejected` counts copies."""

    def __init__(self, bus: Bus, world: World, on_rejected: Callable[[], None] = lambda: None) -> None:
        self._bus = bus
        self._world = world
        self._service = world.service.name
        self._on_rejected = on_rejected
        self._not_before: dict[str, float] = {}
        self._told: dict[str, int] = {}
        self._answered: dict[str, int] = {}
        self._open: dict[str, Key] = {}

    async def begin(self) -> None:
        """A term begins: take over the notices that earlier leaders have raised."""
        self._open.clear()
        self._world.watched.clear()
        for version in await records.load(self._bus, [f"{subjects.NOTICE.prefix}.{self._service}.{NOTICE_KIND}.>"]):
            if isinstance(version.record, Notice):
                subject, bad = str(version.record.fields.get("subject")), version.record.fields.get("sequence")
                last = await records.last_message(self._bus, subject)
                answered = last is not None and (last.sequence == bad or RESTORES in (last.headers or {}))
                self._raised(subject, version.key, last.sequence if last is not None and answered else 0)
                if not answered:
                    self._world.corrected[subject] = None

    async def withdraw(self, now: datetime, commit: Commit) -> None:
        """Delete the notices about what was corrected."""
        for subject in list(self._world.corrected)[:SUBJECTS_PER_PASS]:
            key = self._open.get(subject)
            if key is not None:
                outcome = await commit([outgoing(Change(subjects.NOTICE, key, None))], now)
                if not isinstance(outcome, Stored):
                    return
            self._open.pop(subject, None)
            self._world.corrected.pop(subject, None)
            self._world.watched.pop(subject, None)

    def _raised(self, subject: str, key: Key, answer: int) -> None:
        if len(self._open) < MOST_REMEMBERED:
            self._open[subject] = key
            self._world.watched[subject] = answer

    async def history(self, subject: str) -> list[Message]:
        """The versions of a subject; none of one that no record can have, since none of them is valid."""
        return await records.history(self._bus, subject) if is_well_formed(subject) else []

    def due(self) -> list[Message]:
        """The bad messages that this service has to answer now."""
        now = monotonic()
        return [
            message
            for subject, message in self._world.unreadable.items()
            if self._told.get(subject) != message.sequence
            and self._not_before.get(subject, 0.0) <= now
            and self._concerns(message)
        ][:SUBJECTS_PER_PASS]

    def seconds_until_due(self) -> float | None:
        """How long until a bad message that had to wait is due; None without one."""
        waiting = [
            self._not_before[subject]
            for subject, message in self._world.unreadable.items()
            if subject in self._not_before and self._told.get(subject) != message.sequence and self._concerns(message)
        ]
        return max(0.0, min(waiting) - monotonic()) if waiting else None

    async def answer(self, message: Message, now: datetime, commit: Commit) -> None:
        """Answer one bad message. One that cannot be answered is left as it is: it rules nothing."""
        try:
            await self._answer(message, now, commit)
        except InvalidRecord as error:
            log.error("a bad message cannot be answered", error=printable(str(error))[:2000])
            self._told[message.subject] = message.sequence

    async def _answer(self, message: Message, now: datetime, commit: Commit) -> None:
        subject = message.subject
        if len(self._not_before) > MOST_REMEMBERED:
            self._not_before.clear()
            self._told.clear()
            self._answered.clear()
        self._not_before[subject] = monotonic() + AGAIN_SECONDS
        kind, _ = subjects.kind_of(subject)
        if kind not in self._world.service.keeps:
            await self._tell(message, now, commit)
            return
        refuses = partial(self._world.service.refuses, self._world.state)
        restoration = plan_restoration(await self._versions(message), refuses)
        if restoration is None:
            self._told[subject] = message.sequence  # somebody has corrected it; the log will show
            return
        await self._copy(restoration)
        outcome = await commit(restoring(self._service, restoration, now), now)
        if isinstance(outcome, Stored):
            self._answered[subject] = outcome.sequences[-1]
            self._raised(subject, notice_key(self._service, subject, kind), outcome.sequences[-1])
            log.warning(
                "a bad message was answered",
                subject=printable(subject),
                sequence=restoration.last.sequence,
                restored=restoration.restored_sequence,
            )

    def _concerns(self, message: Message) -> bool:
        kind, _ = subjects.kind_of(message.subject)
        return kind in self._world.service.keeps or kind.keeper is None

    async def _versions(self, message: Message) -> list[Message]:
        """The versions of the subject since the last answer, which is valid."""
        if not is_well_formed(message.subject):
            return [message]
        start = self._answered.get(message.subject, 1)
        return await records.history(self._bus, message.subject, start) or [message]

    async def _copy(self, restoration: Restoration) -> None:
        for index, (message, _) in enumerate(restoration.bad):
            subject, record = rejection(restoration, index)
            await _store_copy(self._bus, subject, codec.encode(record), message.sequence)
            self._on_rejected()

    async def _tell(self, message: Message, now: datetime, commit: Commit) -> None:
        """A machine's record: ignored, with a notice, unless that was raised before."""
        kind, _ = subjects.kind_of(message.subject)
        key = notice_key(self._service, message.subject, kind)
        earlier = await records.last_message(self._bus, subjects.NOTICE.subject(*key))
        if earlier is None or orjson.loads(earlier.body or b"{}").get("fields", {}).get("sequence") != message.sequence:
            text = f"{printable(message.subject)} at {message.sequence} cannot be read and is ignored: "
            text += "; ".join(problems_of(message))
            outcome = await commit([notice(self._service, message.subject, kind, text, message.sequence, now)], now)
            if not isinstance(outcome, Stored):
                return
        self._raised(message.subject, key, message.sequence)
        self._told[message.subject] = message.sequence


async def _store_copy(bus: Bus, subject: str, body: bytes, sequence: int) -> None:
    """Once, however often it is tried: the sequence of the bad message is the id of the copy."""
    answer = await bus.request(printable(subject), body, {"Nats-Msg-Id": str(sequence)})
    result = orjson.loads(answer.data)
    if "error" in result:
        raise SteerError(f"{REJECTED_STREAM} refuses a copy: {result['error'].get('description')}")
