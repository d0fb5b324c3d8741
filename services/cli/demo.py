"""`steer demo`: the whole once, on this machine, with real processes, in a directory that is gone afterwards.

Everything that was started is stopped, also after a failure or Ctrl-C; then the ends of the logs are shown.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from services.cli.demo_steps import SERVICES, SHOP, Demo, nodes
from services.cli.exits import Exit, Failed
from services.cli.output import Format, Output, line, say
from services.cli.plane import Plane
from services.cli.session import done_before, run_alone, told_to_stop


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
        stop = told_to_stop()
        done = False
        try:
            done = await done_before(stop, Demo(plane, tell).run(output))
            if done and hold:
                tell("It goes on running; Ctrl-C ends it.")
                await stop.wait()
        finally:
            await plane.stop()
            if not done:
                _show_tails(plane)
        if not done:
            raise SystemExit(Exit.INTERRUPTED)


def _show_tails(plane: Plane) -> None:
    for path, lines in plane.tails():
        say(f"== {path.name}", style="bold")
        for text in lines:
            say(f"  {text}")
