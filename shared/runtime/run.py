"""The composition root of a service's process: connect, run one instance, stop cleanly.

A clean stop (SIGTERM, SIGINT) ends the pass under way, gives the lease back, so that a standby takes over at once, and
exits with 0. A setting that cannot be used exits with 2, a connection that is gone for good with 1: whatever supervises
the process starts it anew.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import structlog
import uvloop

from shared.errors import ConfigurationError, SteerError
from shared.runtime import logs
from shared.runtime.bus import Bus, connect
from shared.runtime.instance import Alongside, Instance
from shared.runtime.settings import Settings
from shared.service import Service

log = structlog.get_logger(__name__)


async def serve(
    service: Service[Any],
    settings: Settings,
    *,
    stop: asyncio.Event,
    bus: Bus | None = None,
    alongside: Sequence[Alongside] = (),
) -> None:
    """Run one instance of a service until `stop` is set. Raises `Unavailable` when the connection is gone for good.

    A `bus` that is given stays open; else the instance has its own. Waits for a server that is away.
    """
    if bus is not None:
        await Instance(service, bus, stop, alongside).run()
        return
    own = await _connect_unless_stopped(settings, service.name, stop)
    if own is None:
        return
    try:
        await Instance(service, own, stop, alongside).run()
    finally:
        await own.close()


async def _connect_unless_stopped(settings: Settings, name: str, stop: asyncio.Event) -> Bus | None:
    connecting, stopping = asyncio.create_task(connect(settings, name)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
        return connecting.result() if connecting.done() else None
    finally:
        for task in (connecting, stopping):
            if not task.done():
                task.cancel()
        await asyncio.gather(connecting, stopping, return_exceptions=True)


def main(factory: Callable[[Settings], Service[Any]], *, alongside: Sequence[Alongside] = ()) -> None:
    """For `__main__`: the environment, logs, signals and the event loop; exits the process."""
    try:
        settings = Settings.from_environment()
        service = factory(settings)
    except ConfigurationError as error:
        print(f"cannot start: {error}", file=sys.stderr)  # noqa: T201 - the logs are not configured yet
        sys.exit(2)
    logs.configure(settings, service=service.name)
    try:
        uvloop.run(_until_signalled(service, settings, alongside))
    except ConfigurationError as error:
        log.error("cannot start", reason=str(error))
        sys.exit(2)
    except SteerError as error:
        log.error("ended", reason=str(error))
        sys.exit(1)


async def _until_signalled(service: Service[Any], settings: Settings, alongside: Sequence[Alongside]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(service, settings, stop=stop, alongside=alongside)
    log.info("stopped")
