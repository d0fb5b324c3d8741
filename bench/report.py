"""The table that people read, and the file that programs read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import orjson
from rich.table import Table

from bench.harness import Figure, Row, Unmeasured

FIELDS = ("figure", "value", "unit", "baseline", "ratio", "target", "met", "size")
"""Of a row in the file, before `at`. A row that could not be taken has only its name, and why in place of the size."""


def table(rows: Sequence[Row], quick: bool) -> Table:
    """One line per figure."""
    result = Table(
        title="Steersman, quick look (no verdict)" if quick else "Steersman", title_justify="left", show_lines=True
    )
    result.add_column("figure", overflow="fold", min_width=40)
    for name in ("value", "baseline", "ratio"):
        result.add_column(name, justify="right", no_wrap=True)
    for name in ("must reach", "aim"):
        result.add_column(name, overflow="fold", min_width=14)
    for row in rows:
        if isinstance(row, Figure):
            result.add_row(*_cells(row))
        else:
            result.add_row(f"{row.figure}\n[yellow]not measured: {row.why}[/]")
    return result


def _cells(row: Figure) -> list[str]:
    return [
        f"{row.figure}\n[dim]{row.size}[/]",
        f"{number(row.value)} {row.unit}",
        "" if row.baseline is None else f"{number(row.baseline)} {row.unit}",
        "" if row.ratio is None else f"{number(row.ratio)}×",
        f"{row.target} {_verdict(row.met)}".strip(),
        f"{row.aim} {_verdict(row.aim_met)}".strip(),
    ]


def _verdict(met: bool | None) -> str:
    return {None: "", True: "[green]✓[/]", False: "[red]✗[/]"}[met]


def number(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(path: Path, rows: Sequence[Row]) -> None:
    """Every row with the moment at which it was written."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    found = [{**_fields(row), "at": at} for row in rows]
    path.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _fields(row: Row) -> dict[str, object]:
    if isinstance(row, Unmeasured):
        return {**dict.fromkeys(FIELDS), "figure": row.figure, "size": f"not measured: {row.why}"}
    return {field: getattr(row, field) for field in FIELDS}
