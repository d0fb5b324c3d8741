"""Running the command of one build: in a group of its own that ends with the worker, its output line by line.

The result is what the command leaves in its metadata file, as buildctl writes it: `containerimage.digest`, and
`platforms` where it says so.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from shared.runtime.embedded import die_with

MAX_LINE_BYTES = 16 * 1024
GRACE_SECONDS = 5.0
LINGER_SECONDS = 2.0
GROUP_FILE = "group"


@dataclass(frozen=True, slots=True)
class Result:
    """`error` is empty where the command succeeded."""

    error: str = ""
    digest: str = ""
    platforms: tuple[str, ...] = ()


class BuildProcess:
    """`run` to the end; `cancel` ends it before that, and then `run` says so."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        self._argv, self._environment, self._directory = list(argv), dict(environment), directory
        self._process: asyncio.subprocess.Process | None = None
        self._canceled = asyncio.Event()

    @property
    def canceled(self) -> bool:
        return self._canceled.is_set()

    def cancel(self) -> None:
        self._canceled.set()

    async def run(self, line: Callable[[str], None]) -> Result:
        """Run it; each line of its output goes to `line`."""
        try:
            await self._start()
        except (OSError, ValueError) as error:
            return Result(f"cannot run {self._argv[0]!r}: {error}")
        assert self._process is not None
        reading = asyncio.create_task(self._read(line))
        ending = asyncio.create_task(self._end_when_canceled())
        try:
            code = await self._process.wait()
            self._signal(signal.SIGKILL)  # what it left behind
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    await asyncio.shield(reading)
        finally:
            for task in (reading, ending):
                task.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)
            self._signal(signal.SIGKILL)
            (self._directory / GROUP_FILE).unlink(missing_ok=True)
        return self._result(code)

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            cwd=self._directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with(os.getpid()) if sys.platform == "linux" else None,
        )
        mark_group(self._directory, self._process.pid)

    async def _read(self, line: Callable[[str], None]) -> None:
        assert self._process is not None and self._process.stdout is not None
        rest = b""
        while chunk := await self._process.stdout.read(64 * 1024):
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                whole, rest = [*whole, rest], b""
            for each in whole:
                line(_text(each))
        if rest:
            line(_text(rest))

    async def _end_when_canceled(self) -> None:
        await self._canceled.wait()
        self._signal(signal.SIGTERM)
        await asyncio.sleep(GRACE_SECONDS)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _result(self, code: int) -> Result:
        if code:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
            return Result(f"{self._argv[0]} {how}")
        try:
            found = json.loads((self._directory / "metadata.json").read_text())
            return Result("", str(found.get("containerimage.digest", "")), tuple(map(str, found.get("platforms", ()))))
        except FileNotFoundError:
            return Result()
        except (OSError, ValueError, AttributeError, TypeError) as error:
            return Result(f"its metadata file cannot be read: {error}")


def mark_group(directory: Path, pid: int) -> None:
    """Remember whose group it is, for the worker that comes after a crash."""
    with contextlib.suppress(psutil.Error):
        (directory / GROUP_FILE).write_text(f"{pid} {psutil.Process(pid).create_time()}")


def end_leftovers(root: Path) -> None:
    """Kill what an earlier worker of this directory has left running: its attempts are lost."""
    for mark in root.glob(f"*/{GROUP_FILE}"):
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid, started = mark.read_text().split()
            if abs(psutil.Process(int(pid)).create_time() - float(started)) < 1:
                os.killpg(int(pid), signal.SIGKILL)
        mark.unlink(missing_ok=True)


def _text(line: bytes) -> str:
    return line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r")
