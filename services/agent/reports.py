"""Reports to the log, instances and snapshots: on change only, in order, until they are stored.

A report is known by what follows the node in its subject, joined by `/`. Of each only the newest waits. A server that is
away is waited for; a report that is refused is given up with an error, until there is another one to make.
"""

import asyncio
import random
from collections.abc import Iterable
from typing import Generic, TypeVar

import structlog

from shared.errors import InvalidRecord, InvalidSubject, SteerError, Unavailable
from shared.model.base import Record
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import Key, Kind

log = structlog.get_logger(__name__)

RETRY_SECONDS = (0.1, 5.0)
R = TypeVar("R", bound=Record)


class Reports(Generic[R]):
    """Of one kind. `stored` is what the log has, as far as is known; None = no record."""

    def __init__(self, node: str, kind: Kind, model: type[R]) -> None:
        self._node = node
        self._kind = kind
        self._model = model
        self._waiting: dict[str, R | None] = {}
        self._refused: dict[str, R | None] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.stored: dict[str, R | None] = {}

    @property
    def waiting(self) -> int:
        """How many reports are not stored yet."""
        return len(self._waiting)

    def latest(self, name: str) -> R | None:
        """What was reported last, stored or not."""
        for reports in (self._waiting, self._refused, self.stored):
            if name in reports:
                return reports[name]
        return None

    def put(self, name: str, report: R | None) -> None:
        """Report it, unless that is what was reported last. None deletes the record."""
        if report == self.latest(name):
            return
        self._refused.pop(name, None)
        self._waiting[name] = report
        self._idle.clear()
        self._work.set()

    async def learn(self, bus: Bus, names: Iterable[str]) -> None:
        """Read what the log has of these. Raises `SteerError` where the log does not answer."""
        for name in sorted(names):
            try:
                version = await records.get_own(bus, self._kind, self._key(name))
            except (InvalidRecord, InvalidSubject) as error:
                log.warning("a report cannot be read", report=name, reason=str(error))
                continue
            record = version.record if version is not None else None
            assert record is None or isinstance(record, self._model)
            self.stored[name] = record
            self._refused.pop(name, None)

    def _key(self, name: str) -> Key:
        return (self._node, *name.split("/"))

    async def run(self, bus: Bus) -> None:
        """Store what is reported, for ever."""
        delay, away = RETRY_SECONDS[0], False
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                await bus.connected.wait()
                name = next(iter(self._waiting))
                if await self._store(bus, name):
                    delay, away = RETRY_SECONDS[0], False
                    continue
                if not away:
                    away = True
                    log.warning("reports cannot be stored now; the newest of each waits", node=self._node)
                # The next attempt begins with another one, lest a single report holds up the rest.
                self._waiting[name] = self._waiting.pop(name)
                await asyncio.sleep(delay * random.uniform(0.75, 1.25))
                delay = min(delay * 2, RETRY_SECONDS[1])
            self._idle.set()

    async def flush(self, within_seconds: float) -> bool:
        """Wait until nothing waits any more; whether that was so in time."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _store(self, bus: Bus, name: str) -> bool:
        """False when it has to be tried again."""
        report = self._waiting[name]
        if name in self.stored and report == self.stored[name]:
            self._done(name, report)
            return True
        try:
            await records.put(bus, self._kind, self._key(name), report)
        except Unavailable:
            return False
        except SteerError as error:
            log.error("a report is refused", report=name, reason=str(error))
            self._refused[name] = report
        else:
            if report is None:
                self.stored.pop(name, None)
            else:
                self.stored[name] = report
        self._done(name, report)
        return True

    def _done(self, name: str, report: R | None) -> None:
        """A newer report may have come while this one was under way."""
        if self._waiting.get(name) is report:
            del self._waiting[name]
