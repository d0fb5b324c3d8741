"""Instances to the log: on change only, in order, until they are stored.

Of each instance only the newest report waits. A server that is away is waited for; a report that is refused is given up
with an error, until there is another one to make.
"""

import asyncio
import random

import structlog

from shared import subjects
from shared.errors import InvalidRecord, InvalidSubject, SteerError, Unavailable
from shared.model.assignment import Instance
from shared.runtime import records
from shared.runtime.bus import Bus

log = structlog.get_logger(__name__)

RETRY_SECONDS = (0.1, 5.0)


class Reports:
    """`stored` is what the log has, as far as is known; None = no record."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._waiting: dict[str, Instance | None] = {}
        self._refused: dict[str, Instance | None] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.stored: dict[str, Instance | None] = {}

    @property
    def waiting(self) -> int:
        """How many reports are not stored yet."""
        return len(self._waiting)

    def latest(self, assignment: str) -> Instance | None:
        """What was reported last, stored or not."""
        for reports in (self._waiting, self._refused, self.stored):
            if assignment in reports:
                return reports[assignment]
        return None

    def put(self, assignment: str, instance: Instance | None) -> None:
        """Report it, unless that is what was reported last. None deletes the record."""
        if instance == self.latest(assignment):
            return
        self._refused.pop(assignment, None)
        self._waiting[assignment] = instance
        self._idle.clear()
        self._work.set()

    async def learn(self, bus: Bus, assignments: set[str]) -> None:
        """Read what the log has of these. Raises `SteerError` where the log does not answer."""
        for assignment in sorted(assignments):
            try:
                version = await records.get(bus, subjects.INSTANCE, (self._node, assignment))
            except (InvalidRecord, InvalidSubject) as error:
                log.warning("an instance record cannot be read", assignment=assignment, reason=str(error))
                continue
            record = version.record if version is not None else None
            assert record is None or isinstance(record, Instance)
            self.stored[assignment] = record
            self._refused.pop(assignment, None)

    async def run(self, bus: Bus) -> None:
        """Store what is reported, for ever."""
        delay, away = RETRY_SECONDS[0], False
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                await bus.connected.wait()
                assignment = next(iter(self._waiting))
                if await self._store(bus, assignment):
                    delay, away = RETRY_SECONDS[0], False
                    continue
                if not away:
                    away = True
                    log.warning("reports cannot be stored now; the newest of each replica waits", node=self._node)
                # The next attempt begins with another one, lest a single report holds up the rest.
                self._waiting[assignment] = self._waiting.pop(assignment)
                await asyncio.sleep(delay * random.uniform(0.75, 1.25))
                delay = min(delay * 2, RETRY_SECONDS[1])
            self._idle.set()

    async def flush(self, within_seconds: float) -> bool:
        """Wait until nothing waits any more; whether that was so in time."""
        try:
            await asyncio.wait_for(self._idle.wait(), within_seconds)
        except TimeoutError:
            return False
        return True

    async def _store(self, bus: Bus, assignment: str) -> bool:
        """False when it has to be tried again."""
        instance = self._waiting[assignment]
        if assignment in self.stored and instance == self.stored[assignment]:
            self._done(assignment, instance)
            return True
        try:
            await records.put(bus, subjects.INSTANCE, (self._node, assignment), instance)
        except Unavailable:
            return False
        except SteerError as error:
            log.error("a report is refused", assignment=assignment, reason=str(error))
            self._refused[assignment] = instance
        else:
            if instance is None:
                self.stored.pop(assignment, None)
            else:
                self.stored[assignment] = instance
        self._done(assignment, instance)
        return True

    def _done(self, assignment: str, instance: Instance | None) -> None:
        """A newer report may have come while this one was under way."""
        if self._waiting.get(assignment) is instance:
            del self._waiting[assignment]
