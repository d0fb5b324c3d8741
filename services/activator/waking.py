"""Activations: one environment at a time, at once and again while requests wait for it and it is cold."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from shared import subjects
from shared.errors import SteerError
from shared.model.activation import Activation
from shared.runtime import records, tasks
from shared.runtime.bus import Bus

log = structlog.get_logger(__name__)

REPEAT_SECONDS = 3.0


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
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REPEAT_SECONDS):
                        await self._publish(environment, parked)
                await asyncio.sleep(REPEAT_SECONDS)
        finally:
            del self._tasks[environment]

    async def _publish(self, environment: str, parked: int) -> None:
        key = (self._name, *environment.split("/"))
        try:
            await records.put(
                self._bus, subjects.ACTIVATION, key, Activation(requested_at=datetime.now(UTC), parked=parked)
            )
        except SteerError as error:
            log.warning("an activation was not stored; again soon", environment=environment, reason=str(error))
        else:
            log.info("woke", environment=environment, parked=parked)
