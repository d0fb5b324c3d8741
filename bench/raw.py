"""Messages written straight into the log, in atomic batches of 1,000, one in flight: to seed it, and as the baseline.

No fence, no record, no model: what the server and the client take at least for these bytes.
"""

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import orjson
from nats.aio.msg import Msg

from shared.runtime.bus import Bus

BATCH = 1000
ANSWER_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Raw:
    """One message; `headers` are complete lines."""

    subject: bytes
    body: bytes
    headers: bytes = b""


def raw(subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> Raw:
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return Raw(subject.encode(), body, lines.encode())


class BatchWriter:
    """Writes over a connection of its own; `write` returns when everything is stored."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = bus.nc.new_inbox()
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def write(self, messages: Iterable[Raw], batch: int = BATCH) -> int:
        """How many were stored. Raises `RuntimeError` where the server refuses a batch."""
        subscription = await self._bus.nc.subscribe(self._inbox, cb=self._receive)
        stored = 0
        for chunk in _chunks(messages, batch):
            self._bus.send(_encode(chunk, self._inbox.encode()), len(chunk))
            await self._bus.nc._flush_pending()
            answer = orjson.loads(await asyncio.wait_for(self._answers.get(), ANSWER_SECONDS))
            if "error" in answer:
                raise RuntimeError(f"the log refuses a batch that starts with {chunk[0].subject!r}: {answer['error']}")
            stored += len(chunk)
        await subscription.unsubscribe()
        return stored

    async def _receive(self, message: Msg) -> None:
        if message.data:  # the first message of a batch is answered with nothing when all is well
            self._answers.put_nowait(message.data)


def _chunks(messages: Iterable[Raw], size: int) -> Iterator[Sequence[Raw]]:
    iterator = iter(messages)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _encode(messages: Sequence[Raw], reply: bytes) -> bytes:
    batch = b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: " % uuid.uuid4().hex.encode()
    last = len(messages) - 1
    parts: list[bytes] = []
    for index, message in enumerate(messages):
        commit = b"Nats-Batch-Commit: 1\r\n" if index == last else b""
        header = b"NATS/1.0\r\n%b%b%d\r\n%b\r\n" % (message.headers, batch, index + 1, commit)
        answer_to = reply if index in (0, last) else b""
        line = b"HPUB %b %b %d %d\r\n" % (message.subject, answer_to, len(header), len(header) + len(message.body))
        parts += (line, header, message.body, b"\r\n")
    return b"".join(parts)
