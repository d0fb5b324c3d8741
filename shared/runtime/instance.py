"""One instance of a service: it follows the log all the time, as a standby too, and leads when it may.

One loop does everything that touches the state: take a batch of the log, fold it, and, when leading, one pass. What runs
beside it (the lease, telemetry, questions, the keeper) only wakes it. All of that is for ever: a task that ends, for
whatever reason, is told on `/healthz` and ends the instance, which then is started anew.
"""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from shared.errors import SteerError, Unavailable
from shared.runtime import reactions, streams, tasks
from shared.runtime.api import Api
from shared.runtime.bus import Bus
from shared.runtime.commit import Committer
from shared.runtime.follower import Follower, Restarted
from shared.runtime.health import HealthServer
from shared.runtime.keeper import KEEPER, Keeper
from shared.runtime.leader import Leader
from shared.runtime.lease import Lease, monotonic
from shared.runtime.metrics import Metrics
from shared.runtime.reactions import Reaction
from shared.runtime.rehearsal import Rehearsal
from shared.runtime.world import World
from shared.service import Service

log = structlog.get_logger(__name__)

ENSURE_SECONDS = (0.25, 5.0)
FAULT_SECONDS = (0.5, 30.0)
LONGEST_WAIT_SECONDS = 1.0


class Instance:
    """`run` until `stop` is set.

    Raises `Unavailable` when the connection is gone for good, and `SteerError` when a task beside the loop has ended.
    """

    def __init__(
        self, service: Service[Any], bus: Bus, stop: asyncio.Event, alongside: "Sequence[Alongside]" = ()
    ) -> None:
        self.service = service
        self.bus = bus
        self.stop = stop
        self.holder = f"{socket.gethostname()}-{os.getpid()}-{random.getrandbits(32):08x}"
        self.metrics = Metrics(service.name)
        self.world = World(service)
        self.follower = Follower(bus, self.world.filters())
        settings = bus.settings
        self.lease = Lease(bus, service.name, self.holder, settings.lease_ttl_seconds, self.follower.poke)
        self.committer = Committer(settings, service.name, bus.name, self.world.traces.of)
        self.leader = Leader(bus, self.world, self.lease, self.committer, self.metrics, self.follower.poke)
        self.rehearsal = Rehearsal(self.world, self.metrics.rehearsed.set)
        self.api = Api(bus, self.world)
        self.health = HealthServer(self._exposition, self._unhealthy, self._unready)
        self._alongside = tuple(alongside)
        self._beside: list[asyncio.Task[Any]] = []
        self._ended = ""
        self._ending = False
        self._faults = 0
        self._back = asyncio.Event()

    async def run(self) -> None:
        take_back = self.bus.on_reconnect(self._reconnected)
        try:
            if self.bus.settings.metrics_port is not None:
                await self.health.start(self.bus.settings.metrics_port)
            await self._ensure_streams()
            await self.follower.start()
            await self.api.start()
            self._start_beside()
            while not self.stop.is_set():
                if self.bus.closed.is_set():
                    raise Unavailable(self._unhealthy())
                if self._ended:
                    raise SteerError(self._ended)
                await self._guarded_step()
        finally:
            take_back()
            await self._end()

    def _start_beside(self) -> None:
        self._run_beside(self._wake_at_the_end(), "wake at the end")
        self._run_beside(self.lease.run(), f"lease of {self.service.name}")
        self._run_beside(self._ensure_streams_again(), "ensure the streams again")
        for work in self._alongside:
            self._run_beside(work(self), getattr(work, "__name__", "alongside"))
        if self.service.name == KEEPER:
            self._run_beside(self._keep(), "keeper")

    def _run_beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._has_ended)
        self._beside.append(task)

    def _has_ended(self, task: asyncio.Task[Any]) -> None:
        """Of its own accord, unless the instance ends anyway."""
        if self._ending or self.stop.is_set() or self.bus.closed.is_set():
            return
        error = None if task.cancelled() else task.exception()
        reason = "it was canceled" if task.cancelled() else repr(error) if error else "it returned"
        name = task.get_name()
        log.error(
            "a task beside the loop has ended", service=self.service.name, task=name, reason=reason, exc_info=error
        )
        self._ended = self._ended or f"{name} has ended: {reason}"
        self.follower.poke()

    async def _end(self) -> None:
        self._ending = True
        self.world.end_load()
        await self.leader.close()
        await tasks.end(*self._beside)
        await self.api.stop()
        await self.follower.stop()
        await self.health.stop()

    async def _guarded_step(self) -> None:
        try:
            await self._step()
        except Exception as error:
            if reactions.to_error(error) is Reaction.FOLLOW_ANEW:
                await self._start_anew(error)
            else:
                log.warning("not now; trying again", service=self.service.name, reason=str(error))
                await self._sleep(random.uniform(*ENSURE_SECONDS) / 4)
        else:
            if self.leader.leading:
                self._faults = 0

    async def _start_anew(self, error: Exception) -> None:
        """A fault: let another instance try, drop the state, load the log again, not too fast."""
        self._faults += 1
        log.error("a fault; dropping the state and loading anew", service=self.service.name, exc_info=error)
        await self.leader.end("a fault")
        await self.lease.give_back()
        self.follower.distrust("a fault in the service or in its state")
        await self._sleep(min(FAULT_SECONDS[1], FAULT_SECONDS[0] * 2**self._faults))

    async def _step(self) -> None:
        batch = await self.follower.next(self._pause())
        if isinstance(batch, Restarted):
            await self.leader.end("the log is loaded anew")
            self.world.reset()
            self.metrics.restarts.inc()
            self.metrics.loaded.set(0)
            return
        if await self.world.fold(batch, self.follower.position):
            self.leader.look()
        self._measure(len(batch))
        if not self.follower.caught_up:
            return
        if not self.world.loaded:
            await self.world.finish_load(self.leader.repair.history)
            self.metrics.loaded.set(1)
            await self.committer.connect()  # a standby has its connection when it is needed
            log.info("the log is loaded", service=self.service.name, position=self.follower.position)
        if self.leader.in_doubt and not self.lease.held:
            # A plan may or may not be in the log, and nobody will tell this instance: the log will.
            self.leader.in_doubt = False
            self.follower.distrust("the term ended with a commit in doubt")
            return
        await self.leader.step()
        if not self.lease.held:
            await self.rehearsal.step()

    def _pause(self) -> float:
        if not self.follower.caught_up:
            return LONGEST_WAIT_SECONDS
        pause = self.leader.pause() if self.lease.held else self.rehearsal.pause()
        return LONGEST_WAIT_SECONDS if pause is None else min(pause, LONGEST_WAIT_SECONDS)

    def _measure(self, messages: int) -> None:
        self.metrics.records.inc(messages)
        self.metrics.position.set(self.follower.position)
        self.metrics.unreadable.set(len(self.world.unreadable))
        self.metrics.lag.set(self.follower.behind)

    async def _ensure_streams(self) -> None:
        delay = ENSURE_SECONDS[0]
        while not self.stop.is_set() and not self.bus.closed.is_set():
            try:
                await streams.ensure(self.bus)
            except Exception as error:
                if reactions.to_error(error) is not Reaction.RETRY:
                    raise
                log.warning("the streams cannot be ensured yet; trying again", reason=str(error))
                await self._sleep(delay)
                delay = min(delay * 2, ENSURE_SECONDS[1])
            else:
                return

    def _reconnected(self) -> None:
        self.leader.attend_again()
        self._back.set()

    async def _ensure_streams_again(self) -> None:
        """A single server that was restarted has forgotten the stream that it kept in memory."""
        while True:
            await self._back.wait()
            self._back.clear()
            await self._ensure_streams()

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    async def _wake_at_the_end(self) -> None:
        waits = [asyncio.create_task(self.stop.wait()), asyncio.create_task(self.bus.closed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await tasks.end(*waits)
        self.follower.poke()

    async def _keep(self) -> None:
        def may() -> bool:
            return self.leader.leading and self.lease.held

        keeper = Keeper(self.bus, may, lambda: self.world.clock.now(monotonic()), self.metrics.trimmed.inc)
        await keeper.run()

    def _exposition(self) -> bytes:
        return self.metrics.text()

    def _unhealthy(self) -> str:
        return f"the connection of {self.bus.name} is gone for good" if self.bus.closed.is_set() else self._ended

    def _unready(self) -> str:
        if not self.bus.connected.is_set():
            return "NATS is away"
        return "" if self.world.loaded else "the log has not been loaded yet"


Alongside = Callable[[Instance], Coroutine[Any, Any, None]]
"""What runs beside an instance until it ends, and writes what is no record: it asks whether the instance leads."""
