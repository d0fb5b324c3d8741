"""Following the log: the last version of every subject, then whatever comes, without a gap.

One consumer delivers in order. The sequence of each message is read from its reply subject. What the consumer numbers
is checked, so that a message which the client or the network lost is noticed at the next one, or at the next heartbeat.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared.errors import SteerError
from shared.runtime.bus import Bus
from shared.runtime.jetstream import api
from shared.subjects import STREAM

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 0.5
SILENCE_SECONDS = 2.0
INACTIVE_SECONDS = 30
LONGEST_ABSENCE_SECONDS = 12 * 3600
BATCH_MESSAGES = 2000
PENDING_MESSAGES = 512 * 1024
RETRY_SECONDS = (0.05, 2.0)
NANOS = 1_000_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the log. `at` is the server's timestamp."""

    subject: str
    sequence: int
    at: datetime
    headers: Mapping[str, str] | None
    body: bytes


class Restarted:
    """Instead of a batch: drop the state that was built; the log comes anew."""


RESTARTED = Restarted()


@dataclass(frozen=True, slots=True)
class _Mark:
    """Between two messages: everything up to `position` came before it; the server waits for `flow_reply`."""

    position: int = 0
    caught_up: bool = False
    flow_reply: str = ""


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
        self._name = name
        self._start = start
        self._pending_messages = pending_messages
        groups = [[each] for each in filters] if name else [list(filters)]
        self._legs = [_Leg(self, index, group) for index, group in enumerate(groups)]
        self._queue: deque[Message | _Mark] = deque()
        self._ready = asyncio.Event()
        self._restarted = False
        self._poked = False
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._created = ""
        self._take_back: list[Any] = []
        self.position = 0
        self.caught_up = False
        self.restarts = 0

    async def start(self) -> None:
        """Begin; returns at once. Waits in the background for a stream that is not there yet."""
        self._take_back = [self._bus.on_reconnect(self._again.set), self._bus.on_slow_consumer(self._slow)]
        self._again.set()
        self._task = asyncio.create_task(self._keep_following(), name=f"follow {self._stream}")

    async def next(self, timeout: float | None) -> list[Message] | Restarted:  # noqa: ASYNC109 - a quiet log is no error
        """The next batch, at most 2,000 messages. Empty at the timeout, after `poke`, and when the load just ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._restarted:
                self._restarted = False
                return RESTARTED
            was_caught_up = self.caught_up
            batch = await self._take()
            if batch or self._poked or self.caught_up != was_caught_up:
                self._poked = False
                return batch
            self._ready.clear()
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return []
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), remaining)

    def poke(self) -> None:
        """Let `next` return at once: something else than the log wants the reader's attention."""
        self._poked = True
        self._ready.set()

    async def stop(self) -> None:
        for take_back in self._take_back:
            take_back()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for leg in self._legs:
            await leg.end()

    async def _take(self) -> list[Message]:
        batch: list[Message] = []
        queue = self._queue
        while queue and len(batch) < BATCH_MESSAGES:
            item = queue.popleft()
            if type(item) is Message:
                batch.append(item)
                continue
            assert isinstance(item, _Mark)
            if item.flow_reply:
                await self._bus.nc.publish(item.flow_reply)
            self.position = max(self.position, item.position)
            self.caught_up = self.caught_up or item.caught_up
        if batch and self.caught_up and len(self._legs) == 1:
            self.position = max(self.position, batch[-1].sequence)
        return batch

    @property
    def behind(self) -> int:
        """How many messages wait, here and at the server, as far as is known."""
        return len(self._queue) + sum(int(leg.pending) for leg in self._legs)

    def _put(self, item: Message | _Mark) -> None:
        self._queue.append(item)
        if not self._ready.is_set():
            self._ready.set()

    def _arrived(self) -> None:
        """A leg has advanced: tell the reader, behind the messages that came before."""
        if all(leg.caught_up for leg in self._legs):
            self._put(_Mark(min(leg.position for leg in self._legs), caught_up=True))

    def distrust(self, reason: str) -> None:
        """Drop everything and load anew."""
        log.warning("following the log anew", stream=self._stream, reason=reason)
        self.restarts += 1
        self._queue.clear()
        self.caught_up = False
        self.position = 0
        self._start = None
        for leg in self._legs:
            leg.forget()
        self._restarted = True
        self._ready.set()
        self._again.set()

    def _slow(self, subscription: object) -> None:
        if any(leg.subscription is subscription for leg in self._legs):
            self.distrust("messages were dropped because the reader is slow")

    async def _keep_following(self) -> None:
        silent = 0
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), HEARTBEAT_SECONDS)
            # A process that was stopped finds its deadline passed before its socket is read: it takes two looks.
            silent = silent + 1 if self._silent() else 0
            if self._again.is_set() or silent >= 2:
                silent = 0
                self._again.clear()
                await self._follow()

    def _silent(self) -> bool:
        return self._bus.connected.is_set() and any(leg.silent_for() > SILENCE_SECONDS for leg in self._legs)

    async def _follow(self) -> None:
        """Make each leg's consumer anew; where that fails, try again later."""
        delay, said = RETRY_SECONDS[0], False
        while True:
            self._again.clear()
            try:
                await self._follow_once()
            except SteerError as error:
                if not said:
                    said = True
                    log.info("cannot follow yet; waiting", stream=self._stream, reason=str(error))
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, RETRY_SECONDS[1])
            else:
                return

    async def _follow_once(self) -> None:
        info = await api(self._bus, f"STREAM.INFO.{self._stream}")
        last, created = int(info["state"]["last_seq"]), str(info["created"])
        reason = self._why_anew(last, created)
        if reason:
            self.distrust(reason)
            self._again.clear()
        self._created = created
        for leg in self._legs:
            await leg.begin(last, self._start)

    def _why_anew(self, last: int, created: str) -> str:
        begun = [leg for leg in self._legs if leg.begun]
        if not begun:
            return ""
        if self._created and created != self._created:
            return "the stream was replaced"
        if not all(leg.caught_up for leg in begun):
            return "the load was interrupted"
        if any(leg.position > last for leg in begun):
            return f"the log ends at {last}, before what was received"
        allowed = min(LONGEST_ABSENCE_SECONDS, self._bus.settings.window_seconds / 2)
        away = max(leg.silent_for() for leg in begun)
        return f"away for {away:.0f} s" if away > allowed else ""


class _Leg:
    """One consumer of a follower and what was received from it."""

    def __init__(self, follower: Follower, index: int, filters: list[str]) -> None:
        self._follower = follower
        self._index = index
        self._filters = filters
        self._heard = 0.0
        self._expected = 1
        self._target = 0
        self._current: object = None
        self._inbox = ""
        self.pending = "0"
        self.subscription: Subscription | None = None
        self.begun = False
        self.caught_up = False
        self.position = 0

    def silent_for(self) -> float:
        """Seconds since the consumer was last heard, the sleep of the machine included."""
        return time.clock_gettime(_BOOT_CLOCK) - self._heard if self._heard else 0.0

    def forget(self) -> None:
        self._current = None
        self.begun = self.caught_up = False
        self.position = 0

    async def begin(self, last: int, start: int | None) -> None:
        """A new consumer: a load, or on from where the old one was."""
        await self.end()
        bus, stream = self._follower._bus, self._follower._stream
        inbox = bus.nc.new_inbox()
        config: dict[str, Any] = {
            "name": f"{self._follower._name or bus.name}-{self._index}-{random.getrandbits(48):012x}",
            "deliver_subject": inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * NANOS),
            "inactive_threshold": INACTIVE_SECONDS * NANOS,
            **self._from_where(start),
        }
        suffix = config["name"]
        if len(self._filters) == 1:
            config["filter_subject"] = self._filters[0]
            suffix += f".{self._filters[0]}"
        else:
            config["filter_subjects"] = self._filters
        self._expected, self._target = 1, last
        current = await self._subscribe(inbox)
        try:
            answer = await api(
                bus, f"CONSUMER.CREATE.{stream}.{suffix}", {"stream_name": stream, "config": config, "action": "create"}
            )
        except SteerError:
            await self.end()
            raise
        if current is self._current:
            self._heard = time.clock_gettime(_BOOT_CLOCK)
            self.begun = True
            if not answer.get("num_pending") and self._expected == 1:
                self._advance(max(self.position, last), caught_up=True)

    def _from_where(self, start: int | None) -> dict[str, Any]:
        if self.caught_up:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": self.position + 1}
        if start is not None:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
        return {"deliver_policy": "last_per_subject"}

    async def _subscribe(self, inbox: str) -> object:
        current = self._current = object()
        self._inbox = inbox

        async def receive(message: Msg) -> None:
            if self._current is current:
                self._receive(message)

        self.subscription = await self._follower._bus.nc.subscribe(
            inbox, cb=receive, pending_msgs_limit=self._follower._pending_messages, pending_bytes_limit=0
        )
        return current

    async def end(self) -> None:
        self._current = None
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            with contextlib.suppress(Exception):  # a closed connection has no subscriptions left
                await subscription.unsubscribe()

    def _receive(self, message: Msg) -> None:
        self._heard = time.clock_gettime(_BOOT_CLOCK)
        headers = message.headers
        if message.subject == self._inbox:  # any publisher can send a message that looks like a heartbeat otherwise
            self._control(message.reply, headers or {})
            return
        tokens = message.reply.split(".")
        at = 5 if len(tokens) == 9 else 7  # with a domain and an account hash in front
        sequence, number = int(tokens[at]), int(tokens[at + 1])
        if number != self._expected:
            self._follower.distrust(f"message {self._expected} of the consumer is missing")
            return
        self._expected += 1
        pending = self.pending = tokens[at + 3]
        when = _EPOCH + timedelta(microseconds=int(tokens[at + 2]) // 1000)
        self._follower._put(Message(message.subject, sequence, when, headers, message.data))
        if self.caught_up:
            self.position = sequence
            if len(self._follower._legs) > 1:
                self._follower._arrived()
        elif pending == "0" or sequence >= self._target:
            self._advance(max(sequence, self._target), caught_up=True)

    def _control(self, reply: str, headers: Mapping[str, str]) -> None:
        """A heartbeat, or the server's question whether it may go on."""
        stalled = reply or headers.get("Nats-Consumer-Stalled", "")
        if stalled:
            self._follower._put(_Mark(flow_reply=stalled))
        last_number = headers.get("Nats-Last-Consumer")
        if last_number is None:
            return
        if int(last_number) != self._expected - 1:
            self._follower.distrust(f"the consumer has sent {last_number} messages, not {self._expected - 1}")
            return
        position = int(headers.get("Nats-Last-Stream", "0"))
        if self.caught_up and position > self.position:
            self._advance(position, caught_up=True)

    def _advance(self, position: int, *, caught_up: bool) -> None:
        self.position = position
        self.caught_up = caught_up
        self._follower._arrived()
