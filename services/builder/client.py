"""For those who want a worker for themselves, beside the builds: the pool as an object.

    pool = Pool(bus, "default")
    async with pool.worker("team-a", wait_seconds=60) as worker:
        ...  # worker.address is theirs, as long as worker.lost is not set

`get` waits for a worker and keeps its lease alive until `release`; `close` gives back all there is. Whoever waits keeps
its place over a restart of the builder, by asking again under the same id.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from ulid import ULID

from services.builder import leases
from shared import subjects
from shared.errors import RequestRefused, SteerError, Unavailable
from shared.runtime import records, tasks
from shared.runtime.bus import Bus

log = structlog.get_logger(__name__)

ASK_SECONDS = 5.0
AGAIN_SECONDS = 0.25
GIVE_BACK_SECONDS = 5.0


class NoUnleasedWorkers(SteerError):
    """No worker was free in time."""


class LeaseLost(SteerError):
    """The worker is another's, or gone: what was done with it may be incomplete."""


class PoolClosed(SteerError):
    """The pool was closed on this side."""


@dataclass(eq=False, slots=True)
class LeasedWorker:
    """A worker of one's own. `lost` is set when the lease has ended against one's will, `reason` says why."""

    worker: str
    address: str
    token: str
    owner: str
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = ""


class Pool:
    """The workers of one pool, as a client sees them."""

    def __init__(self, bus: Bus, name: str = "default") -> None:
        self._bus, self._name = bus, name
        self._held: dict[str, tuple[LeasedWorker, asyncio.Task[None]]] = {}
        self._closed = asyncio.Event()

    @asynccontextmanager
    async def worker(self, owner: str, wait_seconds: float = 3600) -> AsyncIterator[LeasedWorker]:
        """A worker for the time of the block. Raises `LeaseLost` at its end where the lease did not last."""
        leased = await self.get(owner, wait_seconds)
        try:
            yield leased
        finally:
            with contextlib.suppress(LeaseLost, Unavailable):  # the block's own error matters more
                await asyncio.shield(self.release(leased.address))
        if leased.lost.is_set():
            raise LeaseLost(f"{leased.worker}: {leased.reason}")

    async def get(self, owner: str, wait_seconds: float = 0) -> LeasedWorker:
        """Raises `NoUnleasedWorkers` when none was free in time, `PoolClosed`, `RequestRefused`, `Unavailable`."""
        identity = str(ULID()).lower()
        asking = asyncio.create_task(self._ask(owner, wait_seconds, identity))
        closing = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise PoolClosed(f"pool {self._name} was closed")
            reply = asking.result()
        except (asyncio.CancelledError, PoolClosed):
            asking.cancel()
            await asyncio.shield(self._give_up(identity))
            raise
        finally:
            closing.cancel()
        leased = LeasedWorker(reply["worker"], reply["address"], reply["token"], owner)
        keeping = asyncio.create_task(self._keep(leased, float(reply["ttl_seconds"])), name=f"keep {leased.worker}")
        self._held[leased.address] = leased, keeping
        return leased

    async def release(self, address: str) -> None:
        """Give the worker back. Raises `RequestRefused` for an address that is not one's own, `LeaseLost` if it ended."""
        held = self._held.pop(address, None)
        if held is None:
            raise RequestRefused(f"address {address} is not allocated to this client")
        leased, keeping = held
        await tasks.end(keeping)  # once is not enough where an answer comes in that moment
        if leased.lost.is_set():
            raise LeaseLost(f"{leased.worker}: {leased.reason}")
        await self._insist("release", {"worker": leased.worker, "token": leased.token}, GIVE_BACK_SECONDS)

    async def close(self) -> None:
        """Give everything back; whoever waits is told that the pool is closed."""
        self._closed.set()
        for address in list(self._held):
            with contextlib.suppress(SteerError):
                await self.release(address)

    async def _ask(self, owner: str, wait_seconds: float, identity: str) -> dict[str, Any]:
        body = {"pool": self._name, "owner": owner, "wait_seconds": wait_seconds, "id": identity}
        clock = asyncio.get_running_loop().time
        until = clock() + wait_seconds + ASK_SECONDS
        while True:
            if self._closed.is_set():
                raise PoolClosed(f"pool {self._name} was closed")
            try:
                return await self._request("lease", body, ASK_SECONDS)
            except Unavailable:
                if clock() >= until:
                    await self._give_up(identity)
                    raise
                await asyncio.sleep(AGAIN_SECONDS)
            except RequestRefused as error:
                if str(error).startswith(leases.NONE_FREE):
                    raise NoUnleasedWorkers(str(error)) from None
                if not error.not_now:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)

    async def _keep(self, leased: LeasedWorker, ttl_seconds: float) -> None:
        """Renew until it is refused."""
        while True:
            await asyncio.sleep(ttl_seconds / 3)
            try:
                await self._request("renew", {"worker": leased.worker, "token": leased.token}, ttl_seconds / 3)
            except Unavailable as error:
                log.debug("a lease was not renewed; trying on", worker=leased.worker, reason=str(error))
            except RequestRefused as error:
                if error.not_now:
                    continue
                leased.reason = str(error)
                leased.lost.set()
                return

    async def _give_up(self, identity: str) -> None:
        with contextlib.suppress(SteerError):
            await self._insist("release", {"pool": self._name, "id": identity}, GIVE_BACK_SECONDS)

    async def _insist(self, verb: str, body: Mapping[str, Any], seconds: float) -> None:
        """Again while the builder is away; what was refused the second time was done by the first."""
        clock = asyncio.get_running_loop().time
        until, again = clock() + seconds, False
        while True:
            try:
                await self._request(verb, body, seconds)
                return
            except Unavailable:
                if clock() >= until:
                    raise
            except RequestRefused as error:
                if again and not error.not_now:
                    return
                if not error.not_now or clock() >= until:
                    raise
            again = True
            await asyncio.sleep(AGAIN_SECONDS)

    async def _request(self, verb: str, body: Mapping[str, Any], within: float) -> dict[str, Any]:
        reply = await records.request(self._bus, subjects.api("builder", verb), body, within)
        return dict(reply["result"])
