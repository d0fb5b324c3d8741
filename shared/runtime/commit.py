"""Commits: fenced by the term, atomic, one at a time, on a connection of their own.

A commit of one message is a plain publish whose fence is the term; more are one atomic batch of at most 1,000, the fence
on a message that has no expectation of its own. The connection never reconnects and is closed when an outcome is
unknown, so that nothing sent over it can land in a later term; the follower's connection is not touched.

The headers are written as bytes: the client's own encoding costs five times as much, and a batch has a thousand.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence

import orjson
import structlog
from nats.aio.msg import Msg

from shared.errors import SteerError
from shared.runtime.answers import NO_RESPONDERS, NotStored, Outcome, Unknown, judge
from shared.runtime.bus import Bus, connect
from shared.runtime.encode import (
    CAUSE,
    DELETE,
    EXPECTED,
    EXPECTED_SUBJECT,
    OPERATION,
    RESTORES,
    SERVICE,
    TERM,
    Outgoing,
)
from shared.runtime.settings import Settings
from shared.runtime.traces import TRACEPARENT
from shared.service import MAX_BATCH
from shared.subjects import TERM as TERM_KIND

log = structlog.get_logger(__name__)

MIN_TIMEOUT_SECONDS = 4.0


class Committer:
    """Commits of one service. `term` is the fence; `close` ends a connection whose last outcome is in doubt.

    `trace_of(cause)` is the trace of the record that led to a message, which the message then carries.
    """

    def __init__(
        self, settings: Settings, service: str, name: str, trace_of: Callable[[int], str] = lambda _: ""
    ) -> None:
        self._settings = settings
        self._trace_of = trace_of
        self._service = service
        self._name = f"{name}-commit"
        self._fence_subject = TERM_KIND.subject(service)
        self._bus: Bus | None = None
        self._inbox = ""
        self._answer: asyncio.Future[Msg] | None = None
        self._number = 0
        self.timeout = max(MIN_TIMEOUT_SECONDS, settings.lease_ttl_seconds)
        self.term = 0

    async def commit(self, messages: Sequence[Outgoing]) -> Outcome:
        """Store all of them under the term, or none. Raises `InvalidRecord` for one that is too large."""
        assert self.term, "no term is open"
        fence = f"{EXPECTED}: {self.term}\r\n{EXPECTED_SUBJECT}: {self._fence_subject}\r\n".encode()
        return await self._store(messages, fence, has_expectations=any(m.expected is not None for m in messages))

    async def connect(self) -> None:
        """Connect ahead of the first commit. Where that fails, the commit will tell."""
        with contextlib.suppress(SteerError):
            await self._connection()

    async def open_term(self, message: Outgoing) -> Outcome:
        """Publish a term message, whose expectation is the term before it."""
        self.term = 0
        return await self._store([message], b"", has_expectations=True)

    async def close(self) -> None:
        """Close the connection, and drop what it has not sent."""
        bus, self._bus = self._bus, None
        if bus is not None:
            await bus.close()

    async def _store(self, messages: Sequence[Outgoing], fence: bytes, has_expectations: bool) -> Outcome:
        assert 0 < len(messages) <= MAX_BATCH, f"a commit of {len(messages)} messages"
        assert self._answer is None, "a commit is in flight"
        try:
            bus = await self._connection()
        except SteerError as error:
            return NotStored(NO_RESPONDERS, str(error))
        self._number += 1
        data = self._encode(bus, messages, fence, f"{self._inbox}.{self._number}")
        self._answer = asyncio.get_running_loop().create_future()
        bus.send(data, len(messages))
        try:
            await bus.nc._flush_pending()
            async with asyncio.timeout(self.timeout):
                answer = await self._answer
        except (TimeoutError, OSError, ConnectionError) as error:
            return Unknown(str(error) or f"no answer in {self.timeout:g} s")
        except asyncio.CancelledError:
            await self.close()  # nobody will learn the outcome
            raise
        finally:
            self._answer = None
        if not answer.data:
            return NotStored(NO_RESPONDERS, "the log has no leader")
        return judge(orjson.loads(answer.data), len(messages), has_expectations)

    async def _connection(self) -> Bus:
        if self._bus is not None and not self._bus.closed.is_set():
            return self._bus
        bus = await connect(self._settings, self._name, patience=self.timeout, reconnect=False)
        self._inbox = bus.nc.new_inbox()
        bus.on_closed(self._lost)
        await bus.nc.subscribe(f"{self._inbox}.*", cb=self._receive)
        self._bus = bus
        return bus

    async def _receive(self, message: Msg) -> None:
        answer = self._answer
        if answer is None or answer.done() or not message.subject.endswith(f".{self._number}"):
            return
        nobody = bool(message.headers) and (message.headers or {}).get("Status") == str(NO_RESPONDERS)
        if message.data or nobody:  # the first message of a batch is acknowledged with nothing when all is well
            answer.set_result(message)

    def _lost(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection was lost"))

    def _encode(self, bus: Bus, messages: Sequence[Outgoing], fence: bytes, reply: str) -> bytes:
        common = f"NATS/1.0\r\n{SERVICE}: {self._service}\r\n".encode()
        if self.term:
            common += f"{TERM}: {self.term}\r\n".encode()
        fenced = next((i for i, message in enumerate(messages) if message.expected is None), None)
        assert not fence or fenced is not None, (
            "a commit needs a message without an expectation, which carries the fence"
        )
        batch = f"Nats-Batch-Id: {uuid.uuid4().hex}\r\nNats-Batch-Sequence: ".encode() if len(messages) > 1 else b""
        last = len(messages) - 1
        parts: list[bytes] = []
        for index, message in enumerate(messages):
            header = common + _own_headers(message, self._trace_of(message.cause))
            if index == fenced:
                header += fence
            if batch:
                header += batch + b"%d\r\n" % (index + 1)
                if index == last:
                    header += b"Nats-Batch-Commit: 1\r\n"
            header += b"\r\n"
            body = message.body
            bus.check_size(message.subject, body, len(header))
            answer_to = reply if index in (0, last) else ""
            subject = message.subject.encode(errors="surrogateescape")
            line = b"HPUB %b %b %d %d\r\n" % (subject, answer_to.encode(), len(header), len(header) + len(body))
            parts += (line, header, body, b"\r\n")
        return b"".join(parts)


def _own_headers(message: Outgoing, trace: str) -> bytes:
    header = b""
    if message.cause:
        header += f"{CAUSE}: {message.cause}\r\n".encode()
    if trace:
        header += f"{TRACEPARENT}: {trace}\r\n".encode()
    if message.record is None:
        header += f"{OPERATION}: {DELETE}\r\n".encode()
    if message.restores is not None:
        header += f"{RESTORES}: {message.restores}\r\n".encode()
    if message.expected is not None:
        header += f"{EXPECTED}: {message.expected}\r\n".encode()
    return header
