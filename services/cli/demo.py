"""`steer demo`: the whole once, on this machine, with real processes, in a directory that is gone afterwards.

Everything that was started is stopped, also after a failure or Ctrl-C; then the ends of the logs are shown.
"""

import asyncio
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.demo_steps import SERVICES, SHOP, Demo, nodes
from services.cli.exits import Exit, Failed
from services.cli.output import Format, Output, line, say
from services.cli.plane import Plane
from services.cli.session import run_alone
from shared.runtime import tasks


def command(
    *,
    hold: Annotated[bool, typer.Option("--hold", help="Keep it running at the end, until Ctrl-C.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Show it all in half a minute: three nodes, two releases of a shop, a switch of traffic, a crash and its repair."""
    if not SHOP.is_dir():
        raise Failed(f"{SHOP}: the example is missing; the demo runs from a checkout")
    run_alone(_demo(hold, output))


async def _demo(hold: bool, output: Format) -> None:
    tell = say if output is Format.JSON else line
    with tempfile.TemporaryDirectory(prefix="steer-demo-") as directory:
        plane = Plane(Path(directory), nodes(), tell, SERVICES)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        done = False
        try:
            done = await _unless(stop, Demo(plane, tell).run(output))
            if done and hold:
                tell("It goes on running; Ctrl-C ends it.")
                await stop.wait()
        finally:
            await plane.stop()
            if not done:
                _show_tails(plane)
        if not done:
            raise SystemExit(Exit.INTERRUPTED)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work was done before `stop` was set."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    await tasks.end(stopped)
    if not working.done():
        await tasks.end(working)
        return False
    await working
    return True


def _show_tails(plane: Plane) -> None:
    for path, lines in plane.tails():
        say(f"== {path.name}", style="bold")
        for text in lines:
            say(f"  {text}")
