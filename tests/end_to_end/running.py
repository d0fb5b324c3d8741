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
from tests.integration.steer_command import Steer

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
    """Exit code, output and errors of one command, in this process: one of its own would mostly be imports."""
    result = await Steer("", data)(*arguments)
    return result.code, result.out, result.err


async def started(*arguments: str, data: Path) -> asyncio.subprocess.Process:
    """`steer` as a process of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", *arguments),
        cwd=ROOT,
        env=environment() | {"STEER_DATA": str(data)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def up(data: Path, exec_root: Path = SHOP) -> AsyncIterator[Up]:
    """At its end every decision of the log is made again, and every invariant asked."""
    node = ("--exec-root", str(exec_root), "--node", "n1", "--label", "region=north")
    process = await started("up", "-o", "json", *node, "--port", str(free_port()), data=data)
    assert process.stdout is not None and process.stderr is not None
    try:
        await process.stderr.readline()  # where it starts
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), START_SECONDS))
        plane = Up(ready["url"], data, process)
        yield plane
        if process.returncode is None:
            code, out, err = await plane.steer("replay", "--verify")
            assert code == 0, f"a decision of the log comes out otherwise, or an invariant was broken: {out}{err}"
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
