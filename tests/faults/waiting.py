"""Waiting until something holds, while the bus may be away: a question that nobody answers is asked again."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from shared.errors import SteerError

PATIENCE_SECONDS = 180
LOOK_SECONDS = 0.02


async def until(condition: Callable[[], Any], what: str) -> Any:
    """The first value of the condition that is true. Raises `AssertionError` where it never is."""
    deadline = monotonic() + PATIENCE_SECONDS
    reason = ""
    while True:
        try:
            result = condition()
            if isinstance(result, Awaitable):
                result = await result
            if result:
                return result
        except SteerError as error:
            reason = f": {error}"
        assert monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS} s{reason}"
        await asyncio.sleep(LOOK_SECONDS)
