"""`/metrics`, `/healthz` and `/readyz` over HTTP.

Healthy: the event loop runs, the connection is not gone for good, and no part of the work has ended. Ready: connected,
and the log has been loaded. A standby is ready. The answer to a question about health that is negative has status 503
and says why.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from shared.errors import ConfigurationError

REQUEST_SECONDS = 5.0
MAX_REQUEST_BYTES = 8192
TEXT = "text/plain; charset=utf-8"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

Problem = Callable[[], str]
"""Why something is not as it should be; empty when it is."""


class HealthServer:
    """Listens on all addresses; port 0 takes a free one, `port` tells which."""

    def __init__(self, metrics: Callable[[], bytes], unhealthy: Problem, unready: Problem) -> None:
        self._metrics = metrics
        self._unhealthy = unhealthy
        self._unready = unready
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "0.0.0.0", port, limit=MAX_REQUEST_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(head.split(b"\r\n", 1)[0].decode("latin-1"))
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked has gone, or does not speak HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, line: str) -> tuple[str, str, bytes]:
        method, _, rest = line.partition(" ")
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", TEXT, b"GET only\n"
        match rest.partition(" ")[0].partition("?")[0]:
            case "/metrics":
                return "200 OK", EXPOSITION, self._metrics()
            case "/healthz":
                return _verdict(self._unhealthy())
            case "/readyz":
                return _verdict(self._unhealthy() or self._unready())
        return "404 Not Found", TEXT, b"/metrics, /healthz or /readyz\n"


@contextlib.asynccontextmanager
async def answering(port: int | None, metrics: Callable[[], bytes], unready: Problem) -> AsyncIterator[None]:
    """Answer during the block where a port is named. Healthy: the event loop runs.

    Raises `ConfigurationError` where the port is taken.
    """
    if port is None:
        yield
        return
    server = HealthServer(metrics, lambda: "", unready)
    try:
        await server.start(port)
    except OSError as error:
        raise ConfigurationError(f"STEER_METRICS_PORT={port}: {error}") from error
    try:
        yield
    finally:
        await server.stop()


def exposition(gauges: Mapping[str, float]) -> bytes:
    """Figures of the moment, as `/metrics` says them."""
    return "".join(f"# TYPE {name} gauge\n{name} {value}\n" for name, value in gauges.items()).encode()


def _verdict(problem: str) -> tuple[str, str, bytes]:
    if problem:
        return "503 Service Unavailable", TEXT, f"{problem}\n".encode()
    return "200 OK", TEXT, b"ok\n"
