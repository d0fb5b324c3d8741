"""Workers as processes of this machine: `python -m services.builder.worker`, one for each ordinal.

One that ends by itself is started again, after a pause that doubles. The workers end with their scaler.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from shared.runtime.embedded import die_with

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


class LocalWorkers:
    """See `Workers`. `arguments` go to every worker; its output goes to a file of its name below `directory`."""

    def __init__(self, pool: str, prefix: str, directory: Path, arguments: Sequence[str]) -> None:
        self._pool, self._prefix = pool, prefix
        self._directory, self._arguments = directory, tuple(arguments)
        self._kept: dict[int, _Kept] = {}

    def name(self, ordinal: int) -> str:
        return f"{self._prefix}-{ordinal}"

    def pid(self, ordinal: int) -> int | None:
        """The process that runs now."""
        kept = self._kept.get(ordinal)
        return kept.process.pid if kept is not None and kept.process is not None else None

    def ordinals(self) -> set[int]:
        return set(self._kept)

    async def start(self, ordinal: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        name = self.name(ordinal)
        argv = [
            sys.executable, "-m", "services.builder.worker",
            "--pool", self._pool, "--name", name, "--ordinal", str(ordinal),
            "--data", str(self._directory / name), *self._arguments,
        ]  # fmt: skip
        kept = _Kept(name, argv, self._directory / f"{name}.log")
        self._kept[ordinal] = kept
        kept.task = asyncio.create_task(kept.keep(), name=f"keep {name}")
        await kept.began.wait()

    async def stop(self, ordinal: int) -> None:
        """Returns when it has ended: it finishes what it builds first."""
        kept = self._kept.get(ordinal)
        if kept is not None:
            await kept.end()
            self._kept.pop(ordinal, None)


class _Kept:
    def __init__(self, name: str, argv: Sequence[str], log_path: Path) -> None:
        self._name, self._argv, self._log = name, list(argv), log_path
        self._stopping = asyncio.Event()
        self.began = asyncio.Event()
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            await self._spawn()
            assert self.process is not None
            code = await self.process.wait()
            if self._stopping.is_set():
                return
            log.warning("a worker ended; starting it again", worker=self._name, code=code, in_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _spawn(self) -> None:
        with self._log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(os.environ),
                start_new_session=True,
                preexec_fn=die_with(os.getpid()) if sys.platform == "linux" else None,
            )
        self.began.set()

    async def end(self) -> None:
        self._stopping.set()
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            await self.process.wait()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The scaler's own options are not the workers'."""
    return {name: value for name, value in inherited.items() if not name.startswith("STEER_SCALER_")}
