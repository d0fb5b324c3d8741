"""`steer up` as a process, for tests that look at the whole."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from shared.runtime.embedded import free_port

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "shop"
START_SECONDS = 60


@dataclass(frozen=True)
class Up:
    """A control plane that is ready: its URL, its data directory, and the process of `steer up`."""

    url: str
    data: Path
    process: asyncio.subprocess.Process

    async def steer(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and errors of one command."""
        return await steer(*arguments, data=self.data)

    async def say(self) -> str:
        """The next line that `steer up` says."""
        assert self.process.stderr is not None
        return (await asyncio.wait_for(self.process.stderr.readline(), START_SECONDS)).decode().strip()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("STEER_")}


async def steer(*arguments: str, data: Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", *arguments),
        cwd=ROOT,
        env=environment() | {"STEER_DATA": str(data)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def up(data: Path, exec_root: Path = SHOP) -> AsyncIterator[Up]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "up", "-o", "json", "--data", str(data)),
        *("--exec-root", str(exec_root), "--node", "n1", "--label", "region=north", "--port", str(free_port())),
        cwd=ROOT,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        await process.stderr.readline()  # where it starts
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), START_SECONDS))
        yield Up(ready["url"], data, process)
    finally:
        await ended(process)


async def ended(process: asyncio.subprocess.Process) -> int:
    """End it as Ctrl-C does; its exit code."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
    try:
        return await asyncio.wait_for(process.wait(), START_SECONDS)
    except TimeoutError:
        process.kill()
        return await process.wait()
