"""Reading the log up to something that has to come."""

from collections.abc import Callable
from time import monotonic

from shared.runtime.follower import Follower, Message, Restarted

PATIENCE_SECONDS = 600


async def read_until(follower: Follower, done: Callable[[Message], bool]) -> None:
    """Hand every message to `done` until it says so; the rest of a batch is handed on too.

    Raises `RuntimeError` where nothing comes for ten minutes, or the follower had to load anew.
    """
    deadline = monotonic() + PATIENCE_SECONDS
    ready = False
    while not ready:
        batch = await follower.next(deadline - monotonic())
        if isinstance(batch, Restarted):
            raise RuntimeError("the follower had to load anew")
        if batch:
            deadline = monotonic() + PATIENCE_SECONDS
        elif monotonic() >= deadline:
            raise RuntimeError(f"nothing came for {PATIENCE_SECONDS} s")
        for message in batch:
            ready = done(message) or ready
