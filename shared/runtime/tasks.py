"""Ending tasks. The NATS client swallows a cancellation that meets it while it flushes, so one is not always enough."""

import asyncio
from typing import Any

AGAIN_SECONDS = 0.1


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel the tasks until they have ended; their errors are dropped."""
    running = {task for task in tasks if task is not None}
    while running:
        for task in running:
            task.cancel()
        done, running = await asyncio.wait(running, timeout=AGAIN_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()
