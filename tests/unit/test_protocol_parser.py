"""The fast lane for messages: whatever comes, cut wherever it may be, is handed on as the library's parser does."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol import parser as library

from shared.runtime.parser import Parser

TAKEN, QUEUED = 7, 8
WORDS = st.text("abc.*>$-", min_size=1, max_size=12).map(str.encode)
BODIES = st.binary(max_size=60) | st.just(b"\r\nMSG a 1 3\r\n") | st.just(b"x" * 5000)
HEADERS = st.sampled_from([b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0 503\r\n\r\n"])
CONTROL = st.sampled_from(
    [b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'Permissions Violation'\r\n", b'INFO {"max_payload":1048576}\r\n']
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    subject, reply, body = draw(WORDS), draw(st.none() | WORDS), draw(BODIES)
    where = b" ".join([subject, str(draw(st.sampled_from([TAKEN, QUEUED]))).encode(), *([reply] if reply else [])])
    if draw(st.booleans()):
        return b"MSG %b %d\r\n%b\r\n" % (where, len(body), body)
    headers = draw(HEADERS)
    return b"HMSG %b %d %d\r\n%b%b\r\n" % (where, len(headers), len(headers) + len(body), headers, body)


class Heard:
    """What a parser tells its client, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.stats = {"in_msgs": 0, "in_bytes": 0}
        self._pings_outstanding = 1

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, body: bytes, headers: bytes | None) -> None:
        self.calls.append(("message", sid, subject, reply, body, headers or b""))

    def take(self, subject: bytes, reply: bytes, body: bytes, headers: bytes) -> None:
        self.calls.append(("message", TAKEN, subject, reply, body, headers))

    async def _process_err(self, text: str) -> None:
        self.calls.append(("error", text))

    async def _process_ping(self) -> None:
        self.calls.append(("ping",))

    async def _process_pong(self) -> None:
        self.calls.append(("pong",))

    async def _process_info(self, info: Any) -> None:
        self.calls.append(("info", info))

    async def _error_cb(self, error: Exception) -> None:
        self.calls.append(("raised", str(error)))


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


async def heard_by(parser: library.Parser, heard: Heard, parts: list[bytes]) -> list[tuple[Any, ...]]:
    for part in parts:
        await parser.parse(part)
    return heard.calls


@given(st.lists(messages() | CONTROL, max_size=8).map(b"".join), st.lists(st.integers(0, 10**6), max_size=12))
def test_it_hands_on_what_the_library_would(data: bytes, cuts: list[int]) -> None:
    parts = chunks(data, cuts)
    there, here = Heard(), Heard()
    parser = Parser(here)  # type: ignore[arg-type]
    parser.takers[TAKEN] = here.take
    assert asyncio.run(heard_by(parser, here, parts)) == asyncio.run(heard_by(library.Parser(there), there, parts))
    assert here._pings_outstanding == (0 if parts else 1), "whatever comes is a sign of life"
    assert not parser.buf


async def test_a_taker_that_fails_does_not_keep_the_others_from_their_messages() -> None:
    heard = Heard()
    parser = Parser(heard)  # type: ignore[arg-type]

    def fail(*_: bytes) -> None:
        raise ValueError("no such record")

    parser.takers[TAKEN] = fail
    await parser.parse(b"MSG a 7 1\r\nx\r\nMSG b 8 1\r\ny\r\n")
    assert heard.calls == [("raised", "no such record"), ("message", QUEUED, b"b", b"", b"y", b"")]


async def test_what_is_no_operation_of_the_protocol_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        await Parser(Heard()).parse(b"HELLO\r\n")  # type: ignore[arg-type]
