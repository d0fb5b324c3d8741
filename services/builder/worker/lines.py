"""The output of a build on its way to the log stream: in order, each line once, stored before the build is reported.

A line is sent again until it is stored, under an id of its own. While the bus is away lines are kept, up to a number;
then the oldest go, and the log says how many.
"""

import asyncio
from collections import deque
from datetime import UTC, datetime

import structlog

from shared import codec, subjects
from shared.errors import Unavailable
from shared.model.build_worker import BuildOrder
from shared.model.live import LogLine
from shared.runtime import messages, tasks
from shared.runtime.bus import Bus
from shared.subjects import Key

log = structlog.get_logger(__name__)

MOST_KEPT = 20_000
PAUSE_SECONDS = 0.25


class Lines:
    """`put` never blocks; `flush` waits until all of it is stored."""

    def __init__(self, bus: Bus, worker: str, order: BuildOrder) -> None:
        self._bus, self._worker, self._order = bus, worker, order
        key: Key = tuple(order.build.split("/"))
        self._subject = subjects.build_log(*key)
        self._kept: deque[tuple[int, LogLine]] = deque()
        self._number = 0
        self._dropped = 0
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task = asyncio.create_task(self._send_all(), name=f"log of {order.build}")

    def put(self, text: str, *, end: bool = False) -> None:
        line = LogLine(attempt=self._order.attempt, worker=self._worker, line=text, at=datetime.now(UTC), end=end)
        if len(self._kept) >= MOST_KEPT:
            self._kept.popleft()
            self._dropped += 1
        self._number += 1
        self._kept.append((self._number, line))
        self._empty.clear()
        self._more.set()

    async def flush(self, within: float) -> bool:
        """Whether everything was stored in time."""
        try:
            async with asyncio.timeout(within):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        await tasks.end(self._task)

    async def _send_all(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._kept:
                number, line = self._kept[0]
                dropped, self._dropped = self._dropped, 0
                if dropped:
                    text = f"({dropped} lines were lost: the log was away)"
                    await self._send(f"before-{number}", line.model_copy(update={"line": text, "end": False}))
                await self._send(str(number), line)
                if self._kept[0][0] == number:
                    self._kept.popleft()
            self._empty.set()

    async def _send(self, identity: str, line: LogLine) -> None:
        body = codec.encode(line)
        while True:
            try:
                await messages.store(self._bus, self._subject, body, f"{self._order.token}-{identity}")
                return
            except Unavailable as error:
                log.debug("a log line was not stored; trying again", reason=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
