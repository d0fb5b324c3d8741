"""What commands print: tables and lines for people, or one JSON document for programs (`-o json`).

Results go to the standard output; progress, hints and errors to the standard error, so that a pipe gets results only.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

UNFOLDED = 100_000
"""Columns of a table that goes into a file or a pipe: each row stays on one line there."""


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="text for people, json for programs.")]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command tells what that means


def console(*, errors: bool = False) -> Console:
    """Bound to the stream as it is now."""
    stream = sys.stderr if errors else sys.stdout
    return _Console(file=stream, highlight=False, width=None if stream.isatty() else UNFOLDED)


def line(text: str = "", style: str | None = None) -> None:
    """One line of a result."""
    console().print(text, style=style, markup=False, soft_wrap=True)


def say(text: str, style: str | None = None) -> None:
    """One line of progress or of a hint."""
    console(errors=True).print(text, style=style, markup=False, soft_wrap=True)


def as_json(value: Any) -> None:
    """One JSON document, indented."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=_plain).decode() + "\n")
    sys.stdout.flush()


def as_json_line(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(orjson.dumps(value, default=_plain).decode() + "\n")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Columns without a frame, the values as they are."""
    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*(_escaped(cell) for cell in row))
    screen = console()
    with screen.capture() as shown:
        screen.print(grid)
    for text in shown.get().splitlines():
        screen.file.write(f"{text.rstrip()}\n")


def age(then: datetime, now: datetime) -> str:
    """`12 s`, `3 min`, `5 h`, `9 d`."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _escaped(cell: str) -> str:
    return cell.replace("[", r"\[")


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
