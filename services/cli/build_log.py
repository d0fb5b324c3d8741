"""The log lines of a build, as they are and as they come."""

import asyncio
from collections.abc import Callable

from services.cli.exits import TimedOut
from shared import subjects
from shared.codec import validate
from shared.errors import InvalidRecord
from shared.model.build import BuildStatus
from shared.model.live import LogLine
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.subjects import Key

LOOK_SECONDS = 1.0
LOAD_SECONDS = 10.0


async def follow_log(bus: Bus, key: Key, within: float | None, show: Callable[[LogLine], None] | None) -> bool:
    """Show every line, and with `within` those to come until the build has ended; whether there was any.

    Raises `TimedOut`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + (LOAD_SECONDS if within is None else within)
    follower = Follower(bus, [subjects.build_log(*key)], stream=subjects.LOG_STREAM, start=1)
    await follower.start()
    last = 0
    over = False
    try:
        while True:
            batch = await follower.next(min(LOOK_SECONDS, max(0.0, deadline - clock())))
            if isinstance(batch, Restarted):
                continue  # the log comes anew: what was shown is passed over
            for message in batch:
                if message.sequence > last:
                    last = message.sequence
                    if show is not None:
                        show(_line(message))
            if follower.caught_up and not batch and (within is None or over):
                return last > 0
            over = within is not None and not batch and await _ended(bus, key)
            if clock() >= deadline:
                raise TimedOut(f"the log of build {'/'.join(key)} has not ended in time")
    finally:
        await follower.stop()


def _line(message: Message) -> LogLine:
    try:
        return validate(LogLine, message.subject, message.body)
    except InvalidRecord:
        return LogLine(attempt=0, worker="", line="(a line that cannot be read)", at=message.at)


async def _ended(bus: Bus, key: Key) -> bool:
    """Also where there is neither a status nor a request that could still get one."""
    status = await records.get(bus, subjects.BUILD_STATUS, key)
    if status is None:
        return not await requested(bus, key)
    return not isinstance(status.record, BuildStatus) or status.record.terminal


async def requested(bus: Bus, key: Key) -> bool:
    """Whether a build is known: its request may have been deleted since."""
    kinds = (subjects.BUILD, subjects.BUILD_STATUS)
    return bool(await records.load(bus, [kind.subject(*key) for kind in kinds]))
