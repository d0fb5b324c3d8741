"""The process around whatever runs in it: what it is told, signals, a connection, exit codes.

    with starting():
        settings = Settings.from_environment()
    logs.configure(settings, service="scaler")
    run(lambda stop: scale(settings, stop))

Exit codes: 0 stopped, 1 the connection to the bus is gone for good or a part of the work has ended, 2 a setting cannot be
used. Whatever supervises the process starts it anew.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import structlog
import uvloop

from shared.errors import ConfigurationError, SteerError, Unavailable
from shared.runtime import tasks
from shared.runtime.bus import Bus, connect
from shared.runtime.health import Problem, answering, exposition
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

LOST, BAD_SETTING = 1, 2

Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""What runs until the event is set. Raises `Unavailable` when the connection is gone for good."""


@contextmanager
def starting() -> Iterator[None]:
    """While options and settings are read: one that cannot be used ends the process."""
    try:
        yield
    except ConfigurationError as error:
        print(f"cannot start: {error}", file=sys.stderr)  # noqa: T201 - the logs are not configured yet
        sys.exit(BAD_SETTING)


def run(work: Work, *, stopped: str = "stopped", ended: str = "ended") -> None:
    """Do the work until SIGTERM or SIGINT. The texts are what the log says at a clean end, and at one that is none."""
    try:
        uvloop.run(_until_signalled(work))
        log.info(stopped)
    except ConfigurationError as error:
        log.error("cannot start", reason=str(error))
        sys.exit(BAD_SETTING)
    except SteerError as error:
        log.error(ended, reason=str(error))
        sys.exit(LOST)


async def _until_signalled(work: Work) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await work(stop)


@asynccontextmanager
async def connected(settings: Settings, name: str, stop: asyncio.Event) -> AsyncIterator[Bus | None]:
    """A connection, which ends with the block. Waits for a server that is away; None when `stop` comes first."""
    connecting, stopping = asyncio.create_task(connect(settings, name)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await tasks.end(stopping, None if connecting.done() else connecting)
    bus = None if connecting.cancelled() else connecting.result()  # it may come while it is given up
    try:
        yield bus
    finally:
        if bus is not None:
            await bus.close()


async def work_on_bus(
    settings: Settings,
    name: str,
    stop: asyncio.Event,
    work: Callable[[Bus], Coroutine[Any, Any, None]],
    gauges: Callable[[], Mapping[str, float]],
    unready: Problem,
) -> None:
    """Connect, and do the work, which ends at `stop`; answer about health meanwhile, and with these figures."""
    async with (
        answering(settings.metrics_port, lambda: exposition(gauges()), unready),
        connected(settings, name, stop) as bus,
    ):
        if bus is not None:
            await work(bus)


async def until_stopped(bus: Bus, stop: asyncio.Event, work: Sequence[asyncio.Task[Any]]) -> None:
    """Return when `stop` is set. The work is for ever: what a task of it raises ends the wait, and is raised here.

    Raises `Unavailable` when the connection is gone for good. The tasks are the caller's to end.
    """
    ends = [asyncio.create_task(stop.wait()), asyncio.create_task(bus.closed.wait())]
    try:
        done, _ = await asyncio.wait([*work, *ends], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if not stop.is_set():
            raise Unavailable("the connection to NATS is closed for good")
    finally:
        await tasks.end(*ends)
