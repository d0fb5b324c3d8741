"""`python -m bench [--quick] [--only NAME]`: measure, print one table, write `bench/results.json`.

Exits with 1 where a figure misses what it must reach; a quick run gives no verdict.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console

from bench import (
    builder,
    day,
    durable,
    failover,
    flat,
    following_herd,
    following_routes,
    idle,
    intake,
    memory,
    placing,
    pooler,
    reaction,
    scale,
    trace,
)
from bench.harness import Figure, Group, Options, Row
from bench.report import page, table, write
from shared.runtime import logs
from shared.runtime.settings import Settings

WIDTH = 120
RESULTS = Path(__file__).parent / "results.json"
GROUPS: Mapping[str, Group] = {
    "placing": placing.run,
    "trace": trace.run,
    "flat": flat.run,
    "day": day.run,
    "durable": durable.run,
    "reaction": reaction.run,
    "intake": intake.run,
    "failover": failover.run,
    "following": following_routes.run,
    "herd": following_herd.run,
    "builder": builder.run,
    "pooler": pooler.run,
    "memory": memory.run,
    "idle": idle.run,
    "scale": scale.run,
}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller and fewer, about two minutes, no verdict.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help=f"One of {', '.join(GROUPS)}; repeatable.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write the table as Markdown, too.")] = None,
) -> None:
    """Measure Steersman on this machine."""
    unknown = [name for name in only or [] if name not in GROUPS]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: the groups are {', '.join(GROUPS)}", param_hint="--only")
    logs.configure(Settings(log_level="error"))  # servers are killed on purpose
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    rows: list[Row] = []
    for name in only or GROUPS:
        begun = monotonic()
        with console.status(f"measuring: {name}"):
            rows.extend(_measured(name, Options(quick)))
        console.print(f"[dim]{name}: {monotonic() - begun:.0f} s[/]")
    console.print(table(rows, quick))
    write(RESULTS, rows)
    if report is not None:
        report.write_text(page(rows))
    missed = [row.figure for row in rows if isinstance(row, Figure) and row.met is False]
    if missed:
        console.print(f"[red]missed what must be reached:[/] {', '.join(missed)}")
        sys.exit(1)


def _measured(name: str, options: Options) -> list[Row]:
    """The rows of one group."""
    rows = list(GROUPS[name](options))
    return [row.without_verdict() if isinstance(row, Figure) and options.quick else row for row in rows]


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
