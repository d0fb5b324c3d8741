"""A view of some records that stays current, and waiting until it shows something.

Level-triggered: a condition looks at the view, never at the change that came in, so nothing is missed by coming late.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

from pydantic import BaseModel

from services.cli.exits import TimedOut
from shared.errors import InvalidRecord, InvalidSubject
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.records import version_of
from shared.service import Version
from shared.subjects import Key, Kind

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

LOAD_SECONDS = 10.0


class World:
    """The present version of each record that the filters match."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, Key], Version] = {}

    def take(self, version: Version) -> None:
        self.versions[version.kind.name, version.key] = version

    def version(self, kind: Kind, key: Key) -> Version | None:
        """The version of a record that is there: no tombstone."""
        found = self.versions.get((kind.name, key))
        return found if found and found.record is not None else None

    def record(self, kind: Kind, key: Key, model: type[M]) -> M | None:
        found = self.version(kind, key)
        return found.record if found and isinstance(found.record, model) else None

    def all(self, kind: Kind, *prefix: str) -> list[Version]:
        """Every record of a kind whose key begins like this, in the order of the keys."""
        found = [
            version
            for (name, key), version in self.versions.items()
            if name == kind.name and version.record is not None and key[: len(prefix)] == prefix
        ]
        return sorted(found, key=lambda version: version.key)

    def records(self, kind: Kind, model: type[M], *prefix: str) -> list[tuple[Key, M]]:
        return [(v.key, v.record) for v in self.all(kind, *prefix) if isinstance(v.record, model)]


async def loaded(bus: Bus, filters: Sequence[str]) -> World:
    """What the filters match now."""
    world = World()
    for version in await records.load(bus, filters):
        world.take(version)
    return world


class LiveWorld(World):
    """A `World` that a follower keeps current."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self._follower = follower

    async def load(self) -> Self:
        await self.until(lambda: self._follower.caught_up or None, LOAD_SECONDS, lambda: "the log does not answer")
        return self

    async def until(self, condition: Callable[[], T | None], within: float, waiting: Callable[[], str]) -> T:
        """The first result of `condition` that is not None. Raises `TimedOut` with what `waiting` says then."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within
        while (found := condition()) is None:
            remaining = deadline - clock()
            if remaining <= 0:
                raise TimedOut(f"{waiting()} after {within:g} s")
            await self.refresh(remaining)
        return found

    async def refresh(self, within: float) -> None:
        """Take in what has come, or comes within so many seconds."""
        for change in await changes(self._follower, within):
            if change is None:
                self.versions.clear()
            else:
                self.take(change)


async def changes(follower: Follower, within: float | None) -> list[Version | None]:
    """The next versions; None stands for a load that begins anew. What cannot be read is left to the quarantine."""
    batch = await follower.next(within)
    if isinstance(batch, Restarted):
        return [None]
    return [version for message in batch if (version := readable(message)) is not None]


async def from_now_on(bus: Bus, filters: Sequence[str], seen: int) -> AsyncGenerator[Version, None]:
    """Every version above the sequence `seen` that the filters match, as it comes, for ever; to be closed."""
    follower = Follower(bus, filters, start=seen + 1)
    await follower.start()
    try:
        while True:
            for version in await changes(follower, None):
                if version is not None and version.sequence > seen:  # a load that begins anew brings earlier ones again
                    seen = version.sequence
                    yield version
    finally:
        await follower.stop()


def readable(message: Message) -> Version | None:
    try:
        return version_of(message)
    except (InvalidRecord, InvalidSubject):
        return None


@asynccontextmanager
async def following(bus: Bus, filters: Sequence[str]) -> AsyncIterator[LiveWorld]:
    """A loaded view of the records that the filters match, current for as long as it is waited with."""
    follower = Follower(bus, filters)
    await follower.start()
    try:
        yield await LiveWorld(follower).load()
    finally:
        await follower.stop()
