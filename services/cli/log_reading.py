"""The whole log, as it lies in the stream: its messages, its commits, and since when it is whole.

What is older than the window may have been trimmed, record by record, so the state at a sequence before it is not known.
A log whose sequences begin with 1 and have no gap has not been trimmed at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

from shared.errors import InvalidRecord, InvalidSubject, Unavailable
from shared.invariants.batches import BATCH
from shared.invariants.logged import Logged
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.records import version_of
from shared.runtime.streams import world_subjects

SILENCE_SECONDS = 10.0


async def whole_log(bus: Bus) -> list[Message]:
    """Every message that is kept, in its order."""
    follower = Follower(bus, world_subjects(), start=1)
    await follower.start()
    messages: list[Message] = []
    try:
        while not follower.caught_up:
            batch = await follower.next(SILENCE_SECONDS)
            if isinstance(batch, Restarted):
                messages.clear()
            elif not batch and not follower.caught_up:
                raise Unavailable("the log does not answer")
            else:
                messages += batch
    finally:
        await follower.stop()
    return messages


def commits(messages: Iterable[Message]) -> Iterator[list[Logged]]:
    """What was stored together: the messages of a batch, or one alone."""
    for _, group in groupby(messages, lambda message: (message.headers or {}).get(BATCH) or message.sequence):
        yield [_logged(message) for message in group]


def _logged(message: Message) -> Logged:
    try:
        version = version_of(message)
    except (InvalidRecord, InvalidSubject):
        version = None  # it rules nothing: nobody folds it
    return Logged(message.sequence, message.at, message.subject, message.headers or {}, message.body, version)


def whole_since(messages: Sequence[Message], window_seconds: float) -> datetime | None:
    """From when on the log is whole; None = it is from its beginning."""
    if all(message.sequence == number for number, message in enumerate(messages, start=1)):
        return None
    now = max(datetime.now(UTC), messages[-1].at)
    return now - timedelta(seconds=window_seconds)
