"""Child processes that are kept running: one that ends is started again, after a pause that doubles, and that is said.

Output goes to a file of the program's name. The children end with their parent, where the kernel can arrange that.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.runtime.embedded import die_with

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 30.0
"""Whoever ran for so long starts again with the first pause."""
STOP_SECONDS = 20.0
TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Program:
    """A Python module to be run with these arguments; its variables come on top of those of this process."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Starts programs and keeps them running until `stop`."""

    def __init__(self, logs: Path, say: Callable[[str], None]) -> None:
        self._logs = logs
        self._say = say
        self._kept: dict[str, _Kept] = {}

    async def start(self, program: Program) -> None:
        """Returns when the process has been started. Raises `OSError` where it cannot be."""
        self._logs.mkdir(parents=True, exist_ok=True)
        kept = _Kept(program, self.log_of(program.name), self._say)
        await kept.spawn()
        self._kept[program.name] = kept
        kept.task = asyncio.create_task(kept.keep(), name=f"keep {program.name}")

    async def stop(self, *names: str) -> None:
        """End these programs, or all: SIGTERM, and after a while SIGKILL. Those of one call end side by side."""
        ending = [self._kept.pop(name) for name in names or list(self._kept) if name in self._kept]
        await asyncio.gather(*(kept.end() for kept in ending))

    def pid(self, name: str) -> int:
        """The process that runs now."""
        return self._kept[name].process.pid

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tails(self) -> list[tuple[Path, list[str]]]:
        """The last lines of every log."""
        return [(path, tail(path)) for path in sorted(self._logs.glob("*.log"))]


class _Kept:
    """One program, its present process and the task that waits for it."""

    process: asyncio.subprocess.Process

    def __init__(self, program: Program, log: Path, say: Callable[[str], None]) -> None:
        self._program = program
        self._log = log
        self._say = say
        self._stopping = False
        self.task: asyncio.Task[None] | None = None

    async def spawn(self) -> None:
        with self._log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._program.module,
                *self._program.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | dict(self._program.environment),
                start_new_session=True,  # Ctrl-C reaches the supervisor, which ends its children in order
                preexec_fn=die_with(os.getpid()) if sys.platform == "linux" else None,
            )

    async def keep(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = clock()
            code = await self.process.wait()
            if self._stopping:
                return
            if clock() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._say(f"{self._program.name} {_ending(code)}; it starts again in {pause:g} s (see {self._log})")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            await self.spawn()

    async def end(self) -> None:
        self._stopping = True
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._say(f"{self._program.name} does not end; killing it (see {self._log})")
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def tail(path: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a file, which may not be there."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
