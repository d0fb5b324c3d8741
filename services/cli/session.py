"""Where the server is, and a connection to it for the time of one command.

A command finds the server by `STEER_NATS_URL`, else by the URL that `steer up` has left in its data directory, else at
the default address. Whoever is not there within `PATIENCE_SECONDS` is away. `up` and `demo`, which go on until they are
told to stop, end in order (`told_to_stop`).
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import structlog
import typer

from services.cli.exits import Exit
from shared.errors import Unavailable
from shared.runtime import tasks
from shared.runtime.bus import Bus, connect
from shared.runtime.settings import Settings

T = TypeVar("T")

PATIENCE_SECONDS = 3.0
URL_FILE = "url"

Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="The data directory of `steer up`.", envvar="STEER_DATA")
]
DEFAULT_DATA = Path(".steer")


def settings_for(data: Path) -> Settings:
    """The settings of the environment, with the server's URL where it does not name one."""
    settings = Settings.from_environment()
    recorded = data / URL_FILE
    if not os.environ.get("STEER_NATS_URL") and recorded.is_file():
        return replace(settings, nats_url=recorded.read_text().strip())
    return settings


def run(work: Callable[[Bus], Awaitable[T]], data: Path) -> T:
    """The result of `work` with a connection. Raises `Unavailable` where there is no server."""
    return run_alone(_with_bus(work, settings_for(data)))


def run_alone(work: Awaitable[T]) -> T:
    """The result of a coroutine; Ctrl-C ends the command."""

    async def main() -> T:
        return await work

    quiet()
    try:
        return asyncio.run(main())
    except KeyboardInterrupt:
        raise SystemExit(Exit.INTERRUPTED) from None


def told_to_stop() -> asyncio.Event:
    """What SIGINT and SIGTERM set from now on, instead of ending the command: it has things to put away."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def done_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work was done before `stop` was set; else it is given up. Raises what the work raises."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    await tasks.end(stopped)
    if not working.done():
        await tasks.end(working)
        return False
    await working
    return True


async def _with_bus(work: Callable[[Bus], Awaitable[T]], settings: Settings) -> T:
    try:
        bus = await connect(settings, "steer-cli", patience=PATIENCE_SECONDS)
    except Unavailable as error:
        raise Unavailable(f"{error}; start one with `steer up`, or set STEER_NATS_URL") from None
    try:
        return await work(bus)
    finally:
        await bus.close()


def quiet() -> None:
    """The logs of the runtime are for services: a command shows their errors only, beside its result."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
