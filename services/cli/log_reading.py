"""The whole log, as it lies in the stream, piece by piece: its messages, its commits, and since when it is whole.

What is older than the window may have been trimmed, record by record, so the state at a sequence before it is not known.
A log whose sequences begin with 1 and have no gap has not been trimmed at all.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from shared.errors import InvalidRecord, InvalidSubject, Unavailable
from shared.invariants.batches import BATCH
from shared.invariants.logged import Logged
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.jetstream import api
from shared.runtime.records import version_of
from shared.runtime.streams import world_subjects
from shared.subjects import STREAM

SILENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How far the log goes: its last sequence and when that was stored, and whether nothing was trimmed."""

    last: int
    newest: datetime
    trimmed: bool
    created: str = ""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "Extent":
        """Of a log that was read."""
        if not messages:
            return cls(0, datetime.now(UTC), trimmed=False)
        trimmed = any(message.sequence != number for number, message in enumerate(messages, start=1))
        return cls(messages[-1].sequence, messages[-1].at, trimmed)

    def whole_since(self, window_seconds: float) -> datetime | None:
        """From when on the log is whole; None = it is from its beginning."""
        if not self.trimmed:
            return None
        return max(datetime.now(UTC), self.newest) - timedelta(seconds=window_seconds)


async def extent(bus: Bus) -> Extent:
    """How far the log goes now."""
    info = await api(bus, f"STREAM.INFO.{STREAM}")
    state = info["state"]
    trimmed = int(state["messages"]) != int(state["last_seq"])
    return Extent(int(state["last_seq"]), datetime.fromisoformat(state["last_ts"]), trimmed, str(info["created"]))


async def pieces(bus: Bus, within: Extent) -> AsyncGenerator[list[Message], None]:
    """The messages that are kept, in their order, up to the last of the extent; to be closed. Raises `Unavailable`."""
    follower = Follower(bus, world_subjects(), start=1)
    await follower.start()
    seen = 0
    try:
        while seen < within.last and not follower.caught_up:
            batch = await follower.next(SILENCE_SECONDS)
            if isinstance(batch, Restarted):  # the same messages come again, unless it is another log by now
                if (await extent(bus)).created != within.created:
                    raise Unavailable("the log was replaced while it was read")
                continue
            if not batch and not follower.caught_up:
                raise Unavailable("the log does not answer")
            piece = [message for message in batch if seen < message.sequence <= within.last]
            if piece:
                seen = piece[-1].sequence
                yield piece
    finally:
        await follower.stop()


async def whole_log(bus: Bus) -> list[Message]:
    """Every message that is kept, in its order."""
    async with aclosing(pieces(bus, await extent(bus))) as read:
        return [message async for piece in read for message in piece]


async def commits_in(read: AsyncIterable[list[Message]]) -> AsyncGenerator[list[Logged], None]:
    """What was stored together, of a log that is read piece by piece."""
    held: list[Message] = []
    async for piece in read:
        *whole, held = _together([*held, *piece])  # the last may go on in the next piece
        for commit in whole:
            yield list(map(_logged, commit))
    if held:
        yield list(map(_logged, held))


def commits(messages: Iterable[Message]) -> Iterator[list[Logged]]:
    """What was stored together: the messages of a batch, or one alone."""
    for commit in _together(messages):
        yield list(map(_logged, commit))


def _together(messages: Iterable[Message]) -> Iterator[list[Message]]:
    for _, group in groupby(messages, lambda message: (message.headers or {}).get(BATCH) or message.sequence):
        yield list(group)


def _logged(message: Message) -> Logged:
    try:
        version = version_of(message)
    except (InvalidRecord, InvalidSubject):
        version = None  # it rules nothing: nobody folds it
    return Logged(message.sequence, message.at, message.subject, message.headers or {}, message.body, version)
