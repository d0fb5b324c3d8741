"""`steer sweep sources`: uploaded archives that nobody will build again."""

import time
from pathlib import Path
from typing import Annotated

import typer

from services.cli.exits import Failed, Refused
from services.cli.output import Format, Output, as_json, line, say

HOURS = 24.0

sweep = typer.Typer(help="Delete what is not needed any more.", no_args_is_help=True)


@sweep.command("sources")
def sources(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where uploaded archives lie.")],
    *,
    older_than_hours: Annotated[float, typer.Option(help="Archives written to since then stay.", min=0)] = HOURS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Delete the files of a directory, not of those below it, that are older than a day."""
    if not directory.is_dir():
        raise Refused(f"{directory}: not a directory")
    oldest = time.time() - older_than_hours * 3600
    found = sorted(path for path in directory.iterdir() if _is_old(path, oldest))
    rows = [{"file": str(path), "size_bytes": path.stat().st_size} for path in found]
    if not dry_run:
        for path in found:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise Failed(f"{path}: {error.strerror}") from None
    if output is Format.JSON:
        as_json({"deleted": not dry_run, "files": rows})
        return
    for row in rows:
        line(f"{row['file']}: {'would be deleted' if dry_run else 'deleted'} ({row['size_bytes']} bytes)")
    if not rows:
        say(f"{directory}: nothing is older than {older_than_hours:g} h")


def _is_old(path: Path, oldest: float) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_mtime < oldest
