"""The files of the slots (see `services.routes.render.slots`): written one by one, each replaced at once.

`mark` is a file of its own, written last: whoever finds it finds all that belongs to it.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from services.routes.render.slots import allot

MARK = "mark"


class Slots:
    """The files below `directory`. All of it raises `OSError`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._written: dict[str, tuple[str, ...]] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._used: set[str] = set()

    def has(self, mark: str) -> bool:
        """Whether the files are those of this version."""
        return bool(mark) and self._read(self.directory / MARK) == mark

    def write(self, wanted: Mapping[str, tuple[str, ...]], *, anew: bool) -> None:
        """Give each group its addresses. With `anew` nothing is taken for written."""
        for group, addresses in wanted.items():
            if anew or self._wanted.get(group) != addresses:
                self._wanted.pop(group, None)
                self._write(group, addresses, anew=anew)
                self._wanted[group] = addresses

    def _write(self, group: str, addresses: tuple[str, ...], *, anew: bool) -> None:
        before = self._written.pop(group, ()) or self._found(group, len(allot((), addresses)))
        after = allot(before, addresses)
        (self.directory / group).mkdir(parents=True, exist_ok=True)
        for slot, (old, new) in enumerate(zip(before, after, strict=True)):
            if anew or old != new:
                write = _replace if old else _put  # of a file that is not there nobody sees a half
                write(f"{self.directory}/{group}/{slot}", new)
        self._written[group] = after

    def close(self, mark: str) -> None:
        """All of the version is written."""
        self.directory.mkdir(parents=True, exist_ok=True)
        _replace(f"{self.directory}/{MARK}", mark)

    def prune(self, wanted: Mapping[str, object]) -> None:
        """Take away the groups that neither this configuration has nor the one before, whose requests may still go on."""
        kept, known = self._used | wanted.keys(), bool(self._used)
        self._used = set(wanted)
        if not known:
            return
        for path in self.directory.iterdir():
            if path.is_dir() and path.name not in kept:
                shutil.rmtree(path)
        for group in self._written.keys() - kept:
            del self._written[group], self._wanted[group]

    def _found(self, group: str, count: int) -> tuple[str, ...]:
        """What the files say, as a bridge before this one has left them; empty where there is none."""
        if not (self.directory / group).is_dir():
            return ("",) * count
        return tuple(self._read(self.directory / group / str(slot)) for slot in range(count))

    def _read(self, path: Path) -> str:
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError):
            return ""


def _replace(path: str, text: str) -> None:
    new = f"{path}.new"
    _put(new, text)
    os.replace(new, path)  # noqa: PTH105 - a Path costs as much as the file


def _put(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
