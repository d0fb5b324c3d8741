"""A replica as small as can be: it answers with the name of its release, and keeps connections open as a server does."""

import asyncio
import os
import signal
from pathlib import Path

BODY = (Path.cwd().name + "\n").encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Exchange(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        *requests, self.read = (self.read + data).split(b"\r\n\r\n")
        self.transport.write(ANSWER * len(requests))


async def main() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])
    server = await loop.create_server(Exchange, host, port, backlog=256)
    await stop.wait()
    server.close()


asyncio.run(main())
