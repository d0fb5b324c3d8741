"""`steer`: the commands, and how their errors become exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

import shared.runtime  # noqa: F401 - first, for what its libraries then do not import
from services.cli import (
    apply,
    builds,
    demo,
    deploy,
    events,
    explain,
    functions,
    history,
    nodes,
    reading,
    replay,
    routes,
    scale,
    status,
    up,
    volumes,
)
from services.cli import sweep as sweeping
from services.cli.exits import MEANINGS, Exit, code_of
from services.cli.output import say
from services.cli.server import server
from shared.errors import SteerError

CODES = "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items()) + "."


class _Commands(TyperGroup):
    """Whoever reads the output may have seen enough, as `head` has: that is no failure."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
            raise SystemExit(Exit.OK) from None
        return result


app = typer.Typer(
    cls=_Commands,
    help="Say what should run, and see what does. A server is found by STEER_NATS_URL, else by the data directory "
    "of `steer up`, else at nats://127.0.0.1:4222.",
    epilog=CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("up")(up.command)
app.command("demo")(demo.command)
app.command("apply")(apply.command)
app.command("deploy")(deploy.deploy)
app.command("rollback")(deploy.rollback)
app.command("get")(reading.get)
app.command("explain")(explain.command)
app.command("watch")(reading.watch)
app.command("status")(status.command)
app.command("delete")(reading.delete)
app.command("scale")(scale.command)
app.command("cordon")(nodes.cordon)
app.command("uncordon")(nodes.uncordon)
app.command("drain")(nodes.drain)
app.add_typer(routes.routes, name="routes")
app.add_typer(volumes.volume, name="volume")
app.command("snapshot")(volumes.snapshot)
app.command("snapshots")(volumes.snapshots)
app.command("history")(history.command)
app.command("events")(events.command)
app.command("replay")(replay.command)
app.add_typer(sweeping.sweep, name="sweep")
app.command("call")(functions.call)
app.command("build")(builds.build)
app.command("builds")(builds.builds)
app.command("cancel")(builds.cancel)
app.command("workers")(builds.workers)
app.add_typer(builds.logs, name="logs")
app.add_typer(server, name="server")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; ends with `SystemExit`."""
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="steer")
    except SteerError as error:
        say(f"steer: {error}", style="red")
        sys.exit(code_of(error))


if __name__ == "__main__":
    main()
