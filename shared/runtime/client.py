"""The client of the NATS library, hardened: what it does badly is done otherwise here, and nothing else.

* A subject or a header that is not UTF-8, which anyone may publish, raises in its read loop, which ends without a word:
  the connection is deaf, reconnects a little later, and is sent the same message again.
* Whoever sends a message names where its answer goes, and the server lets the answer go where the answerer may publish:
  a question whose answer is to go to the API of JetStream would have a service purge its own log. So only an inbox is
  answered (`_answerable`).
* Where a reconnect does not get beyond the handshake, the connection is forgotten and stays open (`_connect_to_server`).
* Where the server cuts the connection while the client closes, nobody is told (`_close`).
* A cancellation that meets the end of an attempt to connect is lost there (`asyncio.wait_for` of Python 3.11), and the
  search for a server goes on for ever (`_connect_to_server`).
* A reconnect that is about to succeed when the client is closed goes on, and the client lives again (`_over`).

What a follower reads is handed to it as bytes when it is read (`parser`): the client's queue and task cost more than
that.
"""

import asyncio

import nats.errors
from nats.aio import client
from nats.aio.msg import Msg

from shared.runtime.credentials import INBOX
from shared.runtime.headers import parse
from shared.runtime.parser import Parser, Taker

_ANSWERED = (f"{INBOX}.".encode(), b"$JS.ACK.", b"$JS.FC.")
_PLAIN_HEADERS = b"NATS/1.0\r\n"


class Client(client.Client):
    """`takers` has who gets the messages of a subscription, by its id."""

    def __init__(self) -> None:
        super().__init__()
        self._ps: Parser = Parser(self)
        self.takers: dict[int, Taker] = self._ps.takers
        self._over = False

    async def _select_next_server(self) -> None:
        if self._over:
            raise nats.errors.NoServersError
        await super()._select_next_server()

    async def _connect_to_server(self, server: client.Srv) -> None:
        """Close what the attempt before has left: the client keeps the newest connection only, closed or not."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(server)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Where the connection is cut as well, the client cannot send what is left, stops half-way, and tells nobody."""
        discard_pending(self)
        self._over = status == self.CLOSED
        try:
            await super()._close(status, do_cbs)
        finally:
            if do_cbs and self._closed_cb is not None:
                await self._closed_cb()

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """In its turn: the client would write it past what it holds back, for which a pong would not speak."""
        self._pongs.append(future or asyncio.Future())
        await self._send_command(b"PING\r\n")
        await self._flush_pending()

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        if not headers:
            return None
        if headers.startswith(_PLAIN_HEADERS):  # a third of a load's time, as the client does it
            return parse(headers)
        try:
            return await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError):
            return {}

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        return self.msg_class(
            subject=subject.decode(errors="surrogateescape"),
            reply=reply.decode(errors="surrogateescape") if _answerable(reply) else "",
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )


def _answerable(reply: bytes) -> bool:
    """Whether an answer may go there: an inbox, or what the server itself put into a delivery."""
    return reply.startswith(_ANSWERED)


def discard_pending(nc: client.Client) -> None:
    """Drop what the client holds back; `Client.close` would still send it."""
    nc._pending = []
    nc._pending_data_size = 0
