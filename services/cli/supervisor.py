"""Programs that are kept running until they are stopped, each with a log of its name."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.runtime.kept import Kept

STOP_SECONDS = 20.0
TAIL_LINES = 12
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Program:
    """A Python module to be run with these arguments; its variables come on top of those of this process."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Starts programs and keeps them running until `stop`. `say` gets what people should know."""

    def __init__(self, logs: Path, say: Callable[[str], None]) -> None:
        self._logs = logs
        self._say = say
        self._kept: dict[str, Kept] = {}

    async def start(self, program: Program) -> None:
        """Returns when the process has been started. Raises `OSError` where it cannot be."""
        self._logs.mkdir(parents=True, exist_ok=True)
        name, log = program.name, self._log_of(program.name)
        argv = (sys.executable, "-m", program.module, *program.arguments)
        environment = os.environ | dict(program.environment)
        kept = Kept(argv, environment, log, lambda text: self._say(f"{name} {text} (see {log})"))
        await kept.start()
        self._kept[name] = kept

    async def stop(self, *names: str) -> None:
        """End these programs, or all: SIGTERM, and after a while SIGKILL. Those of one call end side by side."""
        await asyncio.gather(*(self._end(name) for name in names or list(self._kept) if name in self._kept))

    async def _end(self, name: str) -> None:
        if not await self._kept.pop(name).end(STOP_SECONDS):
            self._say(f"{name} did not end and was killed (see {self._log_of(name)})")

    def tails(self) -> list[tuple[Path, list[str]]]:
        """The last lines of every log."""
        return [(path, tail(path)) for path in sorted(self._logs.glob("*.log"))]

    def _log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def tail(path: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a file, which may not be there."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
