"""Following the log: the last version of every subject, then whatever comes, without a gap.

One consumer delivers in order, and notices what was lost on the way (`consumer`).

* A lost connection, or a consumer that went silent: follow on from the next sequence. Nothing is missed, since every
  version stays in the log for the window.
* Messages lost in the client, a log that was replaced, a load that was interrupted, or an absence so long that versions
  may have been trimmed: `Restarted`. The state built so far cannot be trusted; a new load follows.

The server is told to go on only when a batch was taken (flow control), so a slow reader slows the server down instead of
filling the memory.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import nats.errors
import structlog

from shared.errors import SteerError
from shared.runtime import tasks
from shared.runtime.bus import Bus
from shared.runtime.consumer import HEARTBEAT_SECONDS, Consumer, Mark, Message
from shared.runtime.jetstream import api
from shared.subjects import STREAM

log = structlog.get_logger(__name__)

SILENCE_SECONDS = 2.0
LONGEST_ABSENCE_SECONDS = 12 * 3600
BATCH_MESSAGES = 500
PENDING_MESSAGES = 512 * 1024
RETRY_SECONDS = (0.05, 2.0)
ANSWER_SECONDS = (5.0, 80.0)
"""At first the server gets so long to make a consumer, then longer: of a million subjects it looks at each."""

__all__ = ["RESTARTED", "Follower", "Message", "Restarted"]


class Restarted:
    """Instead of a batch: drop the state that was built; the log comes anew."""


RESTARTED = Restarted()


class Follower:
    """See the module. With `name`, each filter has a consumer of its own, whose create subject carries the filter.

    With `start` it begins at that sequence, every version of it, instead of a load.
    """

    def __init__(
        self,
        bus: Bus,
        filters: Sequence[str],
        *,
        stream: str = STREAM,
        name: str | None = None,
        start: int | None = None,
        pending_messages: int = PENDING_MESSAGES,
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._start = start
        groups = [[each] for each in filters] if name else [list(filters)]
        self._consumers = [
            Consumer(bus, stream, f"{name or bus.name}-{index}", group, self) for index, group in enumerate(groups)
        ]
        self._pending_messages = pending_messages
        self._queue: deque[Message | Mark] = deque()
        self._ready = asyncio.Event()
        self._restarted = False
        self._poked = False
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._created = ""
        self._take_back: list[Any] = []
        self._replies: set[asyncio.Task[None]] = set()
        self._has_caught_up = False
        self.position = 0
        self.caught_up = False
        self.restarts = 0

    async def start(self) -> None:
        """Begin; returns at once. Waits in the background for a stream that is not there yet."""
        self._take_back = [self._bus.on_reconnect(self._again.set)]
        self._again.set()
        self._task = asyncio.create_task(self._keep_following(), name=f"follow {self._stream}")

    async def next(self, timeout: float | None) -> list[Message] | Restarted:  # noqa: ASYNC109 - a quiet log is no error
        """The next batch, at most 500 messages. Empty at the timeout, after `poke`, and when the load just ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._queue:
            await asyncio.sleep(0)  # in a flood there is always more to read, and others have to come to their turn
        while True:
            if self._restarted:
                self._restarted = False
                return RESTARTED
            was_caught_up = self.caught_up
            batch = self._take()
            if batch or self._poked or self.caught_up != was_caught_up:
                self._poked = False
                return batch
            self._ready.clear()
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._ready.wait()

    def poke(self) -> None:
        """Let `next` return at once: something else than the log wants the reader's attention."""
        self._poked = True
        self._ready.set()

    async def stop(self) -> None:
        for take_back in self._take_back:
            take_back()
        await tasks.end(self._task)
        for each in self._consumers:
            await each.end()

    def _take(self) -> list[Message]:
        """What waits, up to the bound. Does not await, so that a reader who is cancelled loses nothing."""
        batch: list[Message] = []
        queue = self._queue
        while queue and len(batch) < BATCH_MESSAGES:
            item = queue.popleft()
            if type(item) is Message:
                batch.append(item)
                continue
            assert isinstance(item, Mark)
            if item.flow_reply:
                task = asyncio.create_task(self._go_on(item.flow_reply))
                self._replies.add(task)
                task.add_done_callback(self._replies.discard)
            self.position = max(self.position, item.position)
            self.caught_up = self.caught_up or item.caught_up
            self._has_caught_up = self._has_caught_up or item.caught_up
        if batch and self.caught_up and len(self._consumers) == 1:
            self.position = max(self.position, batch[-1].sequence)
        return batch

    async def _go_on(self, reply: str) -> None:
        """Tell the server that what it has sent was taken. Without a connection there is nobody to tell."""
        if not reply.startswith("$JS.FC."):
            return  # not the server's
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._bus.nc.publish(reply)

    @property
    def behind(self) -> int:
        """How many messages wait, here and at the server, as far as is known."""
        return len(self._queue) + sum(int(each.pending) for each in self._consumers)

    def put(self, item: Message | Mark) -> None:
        if len(self._queue) >= self._pending_messages:
            self.distrust("the reader is too slow for what comes")
            return
        self._queue.append(item)
        if not self._ready.is_set():
            self._ready.set()

    def arrived(self) -> None:
        if len(self._consumers) > 1:  # of one consumer, the messages themselves tell the position
            self.advanced()

    def advanced(self) -> None:
        if all(each.caught_up for each in self._consumers):
            self.put(Mark(min(each.position for each in self._consumers), caught_up=True))

    def distrust(self, reason: str) -> None:
        """Drop everything and load anew."""
        log.warning("following the log anew", stream=self._stream, reason=reason)
        self.restarts += 1
        self._queue.clear()
        self.caught_up = False
        self.position = 0
        if self._has_caught_up:
            self._start = None  # what began at a sequence is continued by a load, once it has been complete
        for each in self._consumers:
            each.forget()
        self._restarted = True
        self._ready.set()
        self._again.set()

    async def _keep_following(self) -> None:
        silent = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._again.wait()
            # A process that was stopped finds its deadline passed before its socket is read: it takes two looks.
            silent = silent + 1 if self._silent() else 0
            if self._again.is_set() or silent >= 2:
                silent = 0
                self._again.clear()
                await self._follow()

    def _silent(self) -> bool:
        return self._bus.connected.is_set() and any(each.silent_for() > SILENCE_SECONDS for each in self._consumers)

    async def _follow(self) -> None:
        """Make the consumers anew; where that fails, try again later."""
        delay, within, said = RETRY_SECONDS[0], ANSWER_SECONDS[0], False
        while True:
            self._again.clear()
            try:
                await self._follow_once(within)
            except (SteerError, OSError, nats.errors.Error) as error:
                if not said:
                    said = True
                    log.info("cannot follow yet; waiting", stream=self._stream, reason=str(error))
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, RETRY_SECONDS[1])
                within = min(within * 2, ANSWER_SECONDS[1]) if self._bus.connected.is_set() else ANSWER_SECONDS[0]
            else:
                return

    async def _follow_once(self, within: float) -> None:
        # What comes while the answer is on its way says nothing about the log.
        received = max((each.position for each in self._consumers if each.begun), default=0)
        info = await api(self._bus, f"STREAM.INFO.{self._stream}", within=within)
        last, created = int(info["state"]["last_seq"]), str(info["created"])
        reason = self._why_anew(last, created, received)
        if reason:
            self.distrust(reason)
            self._again.clear()
        self._created = created
        for each in self._consumers:
            await each.begin(last, self._start, within)

    def _why_anew(self, last: int, created: str, received: int) -> str:
        begun = [each for each in self._consumers if each.begun]
        if not begun:
            return ""
        if self._created and created != self._created:
            return "the stream was replaced"
        if not all(each.caught_up for each in begun):
            return "the load was interrupted"
        if received > last:
            return f"the log ends at {last}, before what was received"
        allowed = min(LONGEST_ABSENCE_SECONDS, self._bus.settings.window_seconds / 2)
        away = max(each.silent_for() for each in begun)
        return f"away for {away:.0f} s" if away > allowed else ""
