"""The connection to NATS, with its traps closed.

* `connect` waits for a server that is away, says so once, and never blocks without a bound of its own.
* A dead peer is noticed within 15 s, and the client reconnects for ever. Each message is a sign of life, as a pong is.
* A question whose connection is lost has no answer any more, and does not wait for one (`request`).
* A client that has closed for good (`closed`) does not come back: whoever holds the bus ends, and is started anew.
* The server cuts a connection whose message exceeds `max_payload`, headers included, and the client does not survive
  that; so every message is measured before it is sent.
* With an nkey, the inbox carries its public key, and nobody else may listen there.
* A refused publish or subscription reaches the caller as a timeout only; the log says which permission is missing.

The traps inside the client itself are closed in `client`.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import nats
import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from shared.errors import ConfigurationError, InvalidRecord, Problem, Unavailable
from shared.runtime.client import Client, discard_pending
from shared.runtime.credentials import credentials, inbox_prefix, tls_context
from shared.runtime.parser import Taker
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

ATTEMPT_SECONDS = 3.0
RETRY_SECONDS = 0.5
REQUEST_SECONDS = 2.0
CLOSE_SECONDS = 2.0
MAX_SUBJECT = 3000
"""The server's limit for a line of the protocol is 4,096 bytes, the answer's subject and the sizes included."""

HEADER_ROOM = 4096
"""Bytes of `max_payload` that are left for what the client and the server add."""

Headers = Mapping[str, str]
_PERMISSION = re.compile(r'permissions violation for (publish|subscription) to "?([^"\s]+)"?', re.IGNORECASE)


class _Lost(nats.errors.Error):
    """The connection was lost before the answer came."""


class Bus:
    """One connection: `nc` the client, `js` its JetStream context. `closed` is set when it is gone for good."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.name = name
        self.nc = Client()
        self.js: JetStreamContext = self.nc.jetstream(timeout=REQUEST_SECONDS)
        self.closed = asyncio.Event()
        self.connected = asyncio.Event()
        self.reconnects = 0
        self.alert = ""
        """What the server said when it refused the certificate; the client itself may only see that it was cut off."""
        self._reconnect_hooks: list[Callable[[], None]] = []
        self._closed_hooks: list[Callable[[], None]] = []
        self._last_error = ""

    def on_reconnect(self, hook: Callable[[], None]) -> Callable[[], None]:
        """Call `hook` after each reconnect; it must not block. The result takes it back."""
        return _register(self._reconnect_hooks, hook)

    def on_closed(self, hook: Callable[[], None]) -> Callable[[], None]:
        """Call `hook` when the connection is gone for good."""
        return _register(self._closed_hooks, hook)

    def check_size(self, subject: str, body: bytes, header_bytes: int) -> None:
        """Raise `InvalidRecord` for a message that would cost the connection."""
        if len(subject) > MAX_SUBJECT:
            raise InvalidRecord(subject[:100], (Problem("", f"a subject of {len(subject)} characters"),))
        room = self.nc.max_payload - HEADER_ROOM
        if len(body) + header_bytes > room:
            reason = f"{len(body)} bytes and {header_bytes} of headers; the server takes {room}"
            raise InvalidRecord(subject, (Problem("", reason),))

    def send(self, data: bytes, messages: int) -> None:
        """Hand complete protocol commands to the connection: for batches, whose headers the client builds slowly."""
        self.nc._pending.append(data)
        self.nc._pending_data_size += len(data)
        self.nc.stats["out_msgs"] += messages
        self.nc.stats["out_bytes"] += len(data)

    async def take(self, subject: str, taker: Taker) -> Subscription:
        """Subscribe; `taker(subject, reply, body, headers)` gets every message from then on, and must not block."""
        subscription = await self.nc.subscribe(subject)
        self.nc.takers[subscription._id] = taker
        return subscription

    async def leave(self, subscription: Subscription) -> None:
        """End what `take` has begun."""
        self.nc.takers.pop(subscription._id, None)
        with contextlib.suppress(Exception):  # a closed connection has no subscriptions left
            await subscription.unsubscribe()

    async def publish(self, subject: str, body: bytes = b"", headers: Headers | None = None, reply: str = "") -> None:
        """Send without an answer."""
        self.check_size(subject, body, header_size(headers))
        await self.nc.publish(subject, body, reply=reply, headers=dict(headers) if headers else None)

    async def request(
        self, subject: str, body: bytes = b"", headers: Headers | None = None, within: float = REQUEST_SECONDS
    ) -> Msg:
        """Send and wait for one answer. Raises `TimeoutError` (outcome unknown) and `NoRespondersError`."""
        self.check_size(subject, body, header_size(headers))
        try:
            return await self.nc.request(subject, body, timeout=within, headers=dict(headers) if headers else None)
        except _Lost:
            raise TimeoutError("the connection was lost before the answer came") from None

    async def close(self) -> None:
        """Close at once. What was not sent is dropped, so that it cannot land later."""
        discard_pending(self.nc)
        with contextlib.suppress(Exception):  # of a handshake that failed, the client waits for an end that has been
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.nc.close()
        await self._on_closed()

    async def _on_reconnected(self) -> None:
        self.reconnects += 1
        self.connected.set()
        log.info("NATS is back", connection=self.name, server=_address(self.nc))
        for hook in list(self._reconnect_hooks):
            hook()

    async def _on_disconnected(self) -> None:
        if self.connected.is_set() and not self.nc.is_closed:
            log.warning("NATS is away; waiting for it", connection=self.name, servers=self.settings.shown_url)
        self.connected.clear()
        for answer in list(self.nc._resp_map.values()):
            if not answer.done():
                answer.set_exception(_Lost())

    async def _on_closed(self) -> None:
        self.connected.clear()
        if not self.closed.is_set():
            self.closed.set()
            for hook in list(self._closed_hooks):
                hook()

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            log.error("messages were dropped by a slow consumer", connection=self.name, subject=error.subject)
            return
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            self.alert = error.reason
        denied = _PERMISSION.search(str(error))
        if denied:
            verb = "publish to" if denied[1].lower() == "publish" else "subscribe to"
            log.error(f"this identity may not {verb} {denied[2]}", connection=self.name)
            return
        text = str(error) or type(error).__name__
        if text != self._last_error:  # a server that is away gives the same error at every attempt
            self._last_error = text
            log.debug("error of the connection", connection=self.name, error=text)


async def connect(
    settings: Settings, name: str, *, patience: float | None = None, reconnect: bool = True, **options: Any
) -> Bus:
    """A connected bus. Waits for a server that is away, for `patience` seconds at most (None = as long as it takes).

    Raises `Unavailable` when the patience is over, `ConfigurationError` where the server refuses the credentials, or its
    certificate cannot be trusted.
    With `reconnect` false a lost connection is not restored, so that nothing that was sent over it can land later.
    """
    deadline = None if patience is None else asyncio.get_running_loop().time() + patience
    said = False
    while True:
        bus = Bus(settings, name)
        try:
            async with asyncio.timeout(_attempt(deadline)):
                await _open(bus, reconnect, options)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            await bus.close()
            refused = _refusal(bus, error)
            if refused:
                raise ConfigurationError(refused) from error
            if deadline is not None and asyncio.get_running_loop().time() >= deadline:
                raise Unavailable(f"no NATS server answers at {settings.shown_url}: {_reason(error)}") from error
            if not said:
                said = True
                log.warning("no NATS server answers; waiting for it", connection=name, servers=settings.shown_url)
            await asyncio.sleep(RETRY_SECONDS)
        except asyncio.CancelledError:
            await bus.close()
            raise
        else:
            bus.connected.set()
            if said:
                log.info("connected", connection=name, server=_address(bus.nc))
            return bus


def _refusal(bus: Bus, error: BaseException) -> str:
    """Why trying again would be of no use; empty where it may be."""
    servers = bus.settings.shown_url
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{servers} is not trusted (STEER_TLS_CA): {error}"
    if bus.alert:
        return f"{servers} refuses the certificate of {bus.name} (STEER_TLS_CERT): {bus.alert}"
    if isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower():
        return f"{servers} refuses the credentials of {bus.name}: {error}"
    return ""


def _attempt(deadline: float | None) -> float:
    """The bound of one attempt: the client itself would go on for ever."""
    if deadline is None:
        return ATTEMPT_SECONDS
    return min(ATTEMPT_SECONDS, max(0.1, deadline - asyncio.get_running_loop().time()))


async def _open(bus: Bus, reconnect: bool, options: Mapping[str, Any]) -> None:
    settings = bus.settings
    # The first connection is tried once; from then on the client itself reconnects, for ever.
    await bus.nc.connect(
        settings.servers,
        name=bus.name,
        allow_reconnect=False,
        max_reconnect_attempts=0,
        reconnect_time_wait=0.25,  # type: ignore[arg-type]  # seconds; the annotation is narrower than the code
        connect_timeout=2,
        ping_interval=5,
        max_outstanding_pings=2,
        pending_size=64 * 1024 * 1024,
        user_credentials=credentials(settings.nats_creds),
        nkeys_seed=settings.nats_nkey or None,
        tls=tls_context(settings),
        inbox_prefix=inbox_prefix(settings.nats_nkey),
        error_cb=bus._on_error,
        disconnected_cb=bus._on_disconnected,
        reconnected_cb=bus._on_reconnected,
        closed_cb=bus._on_closed,
        **options,
    )
    bus.nc.options["allow_reconnect"] = reconnect
    bus.nc.options["max_reconnect_attempts"] = -1


def header_size(headers: Headers | None) -> int:
    """The bytes that headers take on the wire."""
    if not headers:
        return 0
    return 12 + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())


def _register(hooks: list[Any], hook: Any) -> Callable[[], None]:
    hooks.append(hook)

    def take_back() -> None:
        with contextlib.suppress(ValueError):
            hooks.remove(hook)

    return take_back


def _address(client: Client) -> str:
    url = client.connected_url
    return url.netloc.rpartition("@")[2] if url else ""


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
