"""A child process that is kept running: one that ends by itself is started again, after a pause that doubles.

Its output goes to a file. It ends with this process, where the kernel can arrange that.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shared.runtime import tasks
from shared.runtime.embedded import die_with

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 30.0
"""Whoever ran for so long starts again with the first pause."""


class Kept:
    """`start`, then `end`. `tell` gets what people should know: how it ended, and that it starts again."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], output: Path, tell: Callable[[str], None]
    ) -> None:
        self._argv, self._environment = tuple(argv), environment
        self._output = output
        self._tell = tell
        self._ending = False
        self._process: asyncio.subprocess.Process
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the process has been started. Raises `OSError` where it cannot be."""
        self._process = await self._spawn()
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {self._output.stem}")

    async def end(self, within: float | None = None) -> bool:
        """Ask it to end (SIGTERM), and wait; after `within` seconds SIGKILL ends it. Whether that was not needed."""
        self._ending = True
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(within):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            return False
        finally:
            await tasks.end(self._keeping)
        return True

    async def _spawn(self) -> asyncio.subprocess.Process:
        with self._output.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches its keeper, which ends it in its turn
                preexec_fn=die_with(os.getpid()) if sys.platform == "linux" else None,
            )

    async def _keep(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = clock()
            how = _ending(await self._process.wait())
            if self._ending:
                return
            if clock() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._tell(f"{how}; it starts again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            try:
                self._process = await self._spawn()
            except OSError as error:
                self._tell(f"cannot be started: {error}")


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
