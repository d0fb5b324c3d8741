"""The rehearsal of a standby: now and then it decides and keeps nothing, so that it has little to look at when it leads.

It is no hurry: most of what comes is answered by the leader meanwhile. After a load there is much to look at, which takes
many passes; the rest of the process gets most of the time.
"""

from collections.abc import Callable

from shared.runtime.lease import monotonic
from shared.runtime.world import World

EVERY_SECONDS = 0.5
REST = 3
"""So many times as long as its passes take it lets others work, while more is left."""


class Rehearsal:
    """`step` after each batch of the log, where the lease is not held; `pause` says how long nothing is due.

    `tell(1)` after a pass that has left nothing, `tell(0)` after one that has.
    """

    def __init__(self, world: World, tell: Callable[[float], None]) -> None:
        self._world = world
        self._tell = tell
        self._next = 0.0

    def pause(self) -> float:
        """Seconds."""
        return max(0.0, self._next - monotonic())

    async def step(self) -> None:
        """One pass, if it is time. The log has been loaded."""
        world, begun = self._world, monotonic()
        if begun < self._next:
            return
        async with world.lock.writer:
            more = world.service.rehearse(world.state, world.clock.now(begun))
        self._tell(not more)
        ended = monotonic()
        self._next = ended + (REST * (ended - begun) if more else EVERY_SECONDS)
