"""Activations: one for an environment that requests wait for, and one more each time that it is still cold long after.

The log keeps what is stored, so one is enough to wake. It is repeated because a workload can be cooled again while it
starts, if the demand that is reported meanwhile gets lost, and its route is cold all the time.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from shared import subjects
from shared.errors import SteerError
from shared.model.activation import Activation
from shared.runtime import records, tasks
from shared.runtime.bus import Bus

log = structlog.get_logger(__name__)

REPEAT_SECONDS = 15.0
RETRY_SECONDS = 1.0
STORE_SECONDS = 3.0
LOOK_SECONDS = 0.1


class Waker:
    """`waiting` tells how many requests wait for an environment that is cold; 0 ends its activation."""

    def __init__(self, bus: Bus, name: str, waiting: Callable[[str], int]) -> None:
        self._bus = bus
        self._name = name
        self._waiting = waiting
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def wake(self, environment: str) -> None:
        """Begin, unless it is under way."""
        if environment not in self._tasks:
            self._tasks[environment] = asyncio.create_task(self._keep(environment), name=f"wake {environment}")

    async def stop(self) -> None:
        await tasks.end(*self._tasks.values())

    async def _keep(self, environment: str) -> None:
        try:
            while parked := self._waiting(environment):
                stored = await self._publish(environment, parked)
                await self._wait(environment, REPEAT_SECONDS if stored else RETRY_SECONDS)
        finally:
            del self._tasks[environment]

    async def _wait(self, environment: str, seconds: float) -> None:
        """Ends early when nobody waits for it any more, so that the next to come wakes it at once."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while clock() < until and self._waiting(environment):  # noqa: ASYNC110 - told by the gate, which is pure
            await asyncio.sleep(LOOK_SECONDS)

    async def _publish(self, environment: str, parked: int) -> bool:
        key = (self._name, *environment.split("/"))
        record = Activation(requested_at=datetime.now(UTC), parked=parked)
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await records.put(self._bus, subjects.ACTIVATION, key, record)
        except (SteerError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            log.warning("an activation was not stored; again soon", environment=environment, reason=reason)
            return False
        log.info("woke", environment=environment, parked=parked)
        return True
