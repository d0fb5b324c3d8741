"""The lease: who tries to lead. A key of the bucket `steer_leases`, taken and kept by compare-and-set.

It saves the standbys from opening terms against each other; correctness rests on the term (`term`), never on the lease.

* Every write names the revision it replaces and carries the TTL in a header; the client's own `update` would drop it.
* `held` ends at a deadline of the local clock, counted from before the write that set it: also when nobody answers, when
  the process was stopped, when the machine slept.
* A standby watches the key. An expiry leaves a marker, which is replaced by compare-and-set like any other version. A
  slow poll covers what a watcher cannot see: a marker that is gone, or a watcher that is deaf.
* A read decides nothing: it only says which revision to try.
"""

import asyncio
import base64
import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import nats.errors
import orjson
import structlog

from shared.errors import SteerError
from shared.runtime import tasks
from shared.runtime.bus import Bus
from shared.runtime.encode import EXPECTED
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.jetstream import NO_MESSAGE, ApiError, api
from shared.subjects import LEASE_BUCKET

log = structlog.get_logger(__name__)

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
TTL_SHARE = 0.9
RENEWALS = 3
POLL_SECONDS = 1.0
STREAM_NAME = f"KV_{LEASE_BUCKET}"
NO_ANSWER = "no answer, though connected: a server whose disk was full stores nothing until it is started again"


def monotonic() -> float:
    """Seconds that also pass while the process is stopped and the machine sleeps."""
    return time.clock_gettime(_BOOT_CLOCK)


class Lease:
    """`run` takes and keeps the lease until it is cancelled; `on_change` is called when it is taken or lost.

    `epoch` is the revision at which this holder acquired it: the term message names it.
    """

    def __init__(
        self, bus: Bus, service: str, holder: str, ttl_seconds: int, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._bus = bus
        self._service = service
        self.holder = holder
        self._ttl = ttl_seconds
        self._subject = f"$KV.{LEASE_BUCKET}.{service}"
        self._deadline = 0.0
        self._revision = 0
        self._free = False
        self._look = asyncio.Event()
        self._closed = False
        self._refused = ""
        self._on_change = on_change
        self.epoch = 0

    @property
    def held(self) -> bool:
        return monotonic() < self._deadline

    async def run(self) -> None:
        """Forever: renew when held, else try when the key is free."""
        watch = asyncio.create_task(self._watch(), name=f"watch the lease of {self._service}")
        try:
            while True:
                self._look.clear()
                try:
                    pause = await (self._renew() if self._deadline else self._try())
                except (SteerError, OSError, TimeoutError, nats.errors.Error) as error:
                    self._say(error)
                    pause = self._ttl / RENEWALS / 4
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._look.wait()
        finally:
            await tasks.end(watch)

    def _say(self, error: Exception) -> None:
        """Once, where the server refuses or is silent: a full store keeps everybody from leading."""
        silent = isinstance(error, TimeoutError) and self._bus.connected.is_set()
        refused = NO_ANSWER if silent else str(error) if type(error) is SteerError else ""
        if refused and refused != self._refused:
            log.warning("the lease cannot be written; trying again", service=self._service, reason=refused)
        else:
            log.debug("the lease cannot be written now", service=self._service, reason=str(error))
        self._refused = refused or self._refused

    async def close(self) -> None:
        """Give it back and never try again."""
        self._closed = True
        await self.give_back()

    async def give_back(self) -> None:
        """Free the key for the standby, which sees it at once. Best effort: it expires anyway."""
        revision, held = self._revision, self.held
        self._lose("given back")
        if held:
            with contextlib.suppress(SteerError, OSError, TimeoutError, nats.errors.Error):
                await self._write(b"", revision, {"KV-Operation": "DEL"})

    async def _renew(self) -> float:
        """Seconds until the next renewal."""
        if not self.held:
            self._lose("it lapsed")
            return 0.0
        before = monotonic()
        revision = await self._write(self._body(), self._revision, {"Nats-TTL": str(self._ttl)})
        if revision is None:
            # Or an earlier renewal has landed whose answer came too late: then this holder goes on from there.
            own = await self._own_revision()
            if own is None:
                self._lose("somebody else has taken it")
            else:
                self._revision = own
            return 0.0
        self._revision, self._deadline = revision, before + TTL_SHARE * self._ttl
        return self._ttl / RENEWALS

    async def _try(self) -> float:
        """Try to take the key if it looks free; seconds until the next look."""
        if self._closed:
            return POLL_SECONDS
        if not self._free:
            await self._poll()
        if not self._free:
            return POLL_SECONDS * random.uniform(0.8, 1.2)
        before = monotonic()
        revision = await self._write(self._body(), self._revision, {"Nats-TTL": str(self._ttl)})
        if revision is None:
            self._free = False  # somebody was faster; the watch will tell
            return POLL_SECONDS * random.uniform(0.1, 0.3)
        self._revision = self.epoch = revision
        self._deadline = before + TTL_SHARE * self._ttl
        log.info("the lease is taken", service=self._service, holder=self.holder, revision=revision)
        self._on_change()
        return self._ttl / RENEWALS

    def _lose(self, reason: str) -> None:
        if self._deadline:
            log.info("the lease is lost", service=self._service, holder=self.holder, reason=reason)
        self._deadline = 0.0
        self._free = False
        self._on_change()

    async def _write(self, body: bytes, revision: int, headers: dict[str, str]) -> int | None:
        """The new revision; None where the key has another one than `revision`."""
        if not self._bus.connected.is_set():
            raise TimeoutError("not connected")  # a write that waits for a reconnect would land out of time
        answer = await self._bus.request(
            self._subject, body, {EXPECTED: str(revision), **headers}, within=self._ttl / RENEWALS
        )
        result = orjson.loads(answer.data)
        if "error" not in result:
            self._refused = ""
            return int(result["seq"])
        if result["error"].get("err_code") == 10071:
            return None
        raise SteerError(f"{self._subject}: {result['error'].get('description')}")

    def _body(self) -> bytes:
        return orjson.dumps({"holder": self.holder, "ttl_seconds": self._ttl})

    async def _watch(self) -> None:
        follower = Follower(self._bus, [self._subject], stream=STREAM_NAME)
        await follower.start()
        try:
            while True:
                batch = await follower.next(None)
                if isinstance(batch, Restarted):
                    continue
                for message in batch:
                    self._seen(message)
                if not batch:  # the load has ended, and the key may never have existed
                    self._look.set()
        finally:
            await follower.stop()

    def _seen(self, message: Message) -> None:
        if self._deadline:
            return  # a renewal that comes back, or a loss that the next renewal will find
        headers = message.headers or {}
        self._revision = message.sequence
        # An expired, deleted or purged key leaves a version without a body. One's own from before is free as well.
        ours = message.body == self._body()
        self._free = not message.body or "KV-Operation" in headers or "Nats-Marker-Reason" in headers or ours
        if self._free:
            self._look.set()

    async def _own_revision(self) -> int | None:
        """The revision of the key where its last version is a write of this holder, else None."""
        message = await self._last()
        ours = message is not None and base64.b64decode(message.get("data", "")) == self._body()
        return int(message["seq"]) if message is not None and ours else None

    async def _last(self) -> dict[str, Any] | None:
        try:
            found = await api(self._bus, f"STREAM.MSG.GET.{STREAM_NAME}", {"last_by_subj": self._subject}, within=1.0)
        except ApiError as error:
            if error.code != NO_MESSAGE:
                raise
            return None
        last: dict[str, Any] = found["message"]
        return last

    async def _poll(self) -> None:
        message = await self._last()
        if message is None:
            self._revision, self._free = 0, True
        elif int(message["seq"]) >= self._revision and not message.get("data"):
            self._revision, self._free = int(message["seq"]), True
