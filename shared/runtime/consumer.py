"""One ordered push consumer of a stream: numbered, watched by heartbeats, slowed down by flow control.

The sequence of a message is read from its reply subject. What the consumer numbers is checked, so that a message which
the client or the network lost is noticed at the next one, or at the next heartbeat. A load has ended when the server has
nothing more to send, or when all that was in the stream at its begin has come.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import nats.errors
from nats.aio.subscription import Subscription

from shared.errors import SteerError
from shared.runtime.bus import Bus
from shared.runtime.headers import RawHeaders, parse
from shared.runtime.jetstream import api

HEARTBEAT_SECONDS = 0.5
INACTIVE_SECONDS = 30
NANOS = 1_000_000_000

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Message(NamedTuple):
    """One message of the log. `at` is the server's timestamp."""

    subject: str
    sequence: int
    at: datetime
    headers: Mapping[str, str] | None
    body: bytes


_message = cast("Callable[[tuple[Any, ...]], Message]", partial(tuple.__new__, Message))  # at half of its cost


@dataclass(frozen=True, slots=True)
class Mark:
    """Between two messages: everything up to `position` came before it; the server waits for `flow_reply`."""

    position: int = 0
    caught_up: bool = False
    flow_reply: str = ""


class Reader(Protocol):
    """Whom a consumer tells."""

    def put(self, item: Message | Mark) -> None:
        """A message, or a mark behind those that came before it."""

    def arrived(self) -> None:
        """After a message, once caught up."""

    def advanced(self) -> None:
        """The position has moved, or the load has ended."""

    def distrust(self, reason: str) -> None:
        """Something was lost."""


def _time(nanoseconds: bytes) -> datetime:
    """To the microsecond before, exactly: a float tells those of this century apart."""
    return datetime.fromtimestamp(int(nanoseconds) // 1000 / 1_000_000, UTC)


class Consumer:
    """One consumer on the server, made anew by each `begin`, and what was received from it."""

    def __init__(self, bus: Bus, stream: str, name: str, filters: list[str], reader: Reader) -> None:
        self._bus = bus
        self._stream = stream
        self._name = name
        self._filters = filters
        self._reader = reader
        self._heard = 0.0
        self._expected = 1
        self._target = 0
        self._current: object = None
        self._inbox = b""
        self.pending = b"0"
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

    async def begin(self, last: int, start: int | None, within: float) -> None:
        """A new consumer: a load, or on from where the old one was. Raises where the server has not made it in time."""
        await self.end()
        inbox = self._bus.nc.new_inbox()
        config: dict[str, Any] = {
            "name": f"{self._name}-{random.getrandbits(48):012x}",
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
                self._bus,
                f"CONSUMER.CREATE.{self._stream}.{suffix}",
                {"stream_name": self._stream, "config": config, "action": "create"},
                within,
            )
        except (SteerError, OSError, nats.errors.Error):
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
        self._inbox = inbox.encode()
        self.subscription = await self._bus.take(inbox, partial(self._receive, current))
        return current

    async def end(self) -> None:
        self._current = None
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            await self._bus.leave(subscription)

    def _receive(self, current: object, subject: bytes, reply: bytes, body: bytes, headers: bytes) -> None:
        if self._current is not current:
            return  # the rest of a consumer that was given up
        self._heard = time.clock_gettime(_BOOT_CLOCK)
        if subject == self._inbox:  # any publisher can send a message that looks like a heartbeat otherwise
            self._control(reply.decode(errors="surrogateescape"), parse(headers) if headers else {})
            return
        tokens = reply.split(b".")
        at = 5 if len(tokens) == 9 else 7  # with a domain and an account hash in front
        sequence, number = int(tokens[at]), int(tokens[at + 1])
        if number != self._expected:
            self._reader.distrust(f"message {self._expected} of the consumer is missing")
            return
        self._expected += 1
        pending = self.pending = tokens[at + 3]
        name = subject.decode(errors="surrogateescape")
        self._reader.put(
            _message((name, sequence, _time(tokens[at + 2]), RawHeaders(headers) if headers else None, body))
        )
        if self._current is None:
            return  # the reader has had enough, and has dropped everything
        if self.caught_up:
            self.position = sequence
            self._reader.arrived()
        elif pending == b"0" or sequence >= self._target:
            self._advance(max(sequence, self._target), caught_up=True)

    def _control(self, reply: str, headers: Mapping[str, str]) -> None:
        """A heartbeat, or the server's question whether it may go on."""
        stalled = reply or headers.get("Nats-Consumer-Stalled", "")
        if stalled:
            self._reader.put(Mark(flow_reply=stalled))
        last_number = headers.get("Nats-Last-Consumer")
        if last_number is None:
            return
        if int(last_number) != self._expected - 1:
            self._reader.distrust(f"the consumer has sent {last_number} messages, not {self._expected - 1}")
            return
        position = int(headers.get("Nats-Last-Stream", "0"))
        # A load whose last messages were purged before they were sent has no message that says so.
        if position > self.position and (self.caught_up or (position >= self._target and not stalled)):
            self._advance(position, caught_up=True)

    def _advance(self, position: int, *, caught_up: bool) -> None:
        self.position = position
        self.caught_up = caught_up
        self._reader.advanced()
