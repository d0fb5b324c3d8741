"""The parser of the NATS library, with a fast lane for messages.

The library matches each message against a pattern and takes it off the front of a buffer: two thirds of what it costs to
receive one. Here a chunk is read from its beginning to its end and cut once. Whatever is no message is the library's.

Who takes the messages of a subscription as bytes (`takers`) gets them from here, before the client makes objects of them.
"""

from collections.abc import Callable

from nats.aio.client import Client
from nats.protocol import parser

Taker = Callable[[bytes, bytes, bytes, bytes], None]
"""Gets subject, reply, body and headers."""

_END = b"\r\n"


class Parser(parser.Parser):
    """Calls the client as the library's parser does, in the same order. `takers` is by the subscription's id."""

    def __init__(self, nc: Client) -> None:
        super().__init__(nc)
        self.takers: dict[int, Taker] = {}

    async def parse(self, data: bytes = b"") -> None:
        """Take in what was received. Raises `ProtocolError` for what is no operation of the protocol."""
        self.nc._pings_outstanding = 0  # who sends is there, though its pong waits behind megabytes of a load
        chunk = bytes(self.buf) + data if self.buf else data
        at = taken = taken_bytes = 0
        while (end := chunk.find(_END, at)) >= 0:
            line = chunk[at:end].split(b" ")
            begin = end + 2
            if line[0] == b"HMSG":
                reply = line[3] if len(line) == 6 else b""
                body = begin + int(line[-2])
            elif line[0] == b"MSG":
                reply = line[3] if len(line) == 5 else b""
                body = begin
            else:
                self.buf = bytearray(chunk[at:begin])
                await super().parse()
                at = begin
                continue
            stop = begin + int(line[-1])
            if len(chunk) < stop + 2:
                break  # the rest is still to come
            taker = self.takers.get(int(line[2]))
            if taker is None:
                await self.nc._process_msg(int(line[2]), line[1], reply, chunk[body:stop], chunk[begin:body] or None)
            else:
                taken += 1
                taken_bytes += stop - body
                try:
                    taker(line[1], reply, chunk[body:stop], chunk[begin:body])
                except Exception as error:  # a message that anyone may have sent must not end the reading of others
                    await self.nc._error_cb(error)
            at = stop + 2
        self.nc.stats["in_msgs"] += taken
        self.nc.stats["in_bytes"] += taken_bytes
        self.buf = bytearray(chunk[at:])
