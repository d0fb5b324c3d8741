"""Something that is done when it is asked for, and from time to time, but never too often."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from shared.runtime import tasks

log = structlog.get_logger(__name__)


class Paced:
    """`soon` asks for `action`; calls are `at_most_every` seconds apart, and `at_least_every` (None = only when asked).

    The last request is never lost. An action that fails is logged and waits for the next request.
    """

    def __init__(
        self, action: Callable[[], Awaitable[None]], at_most_every: float, at_least_every: float | None = None
    ) -> None:
        self._action = action
        self._at_most_every = at_most_every
        self._at_least_every = at_least_every
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        self._asked.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"paced {self._action.__name__}")

    async def stop(self) -> None:
        task, self._task = self._task, None
        await tasks.end(task)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._at_least_every):
                    await self._asked.wait()
            self._asked.clear()
            try:
                await self._action()
            except Exception as error:
                log.warning("not done; at the next request again", action=self._action.__name__, reason=str(error))
            await asyncio.sleep(self._at_most_every)
