"""A process that is told to end before there is anybody to talk to ends, whatever runs in it."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from shared.runtime.embedded import free_port
from shared.runtime.process import connected
from shared.runtime.settings import Settings

ROOT = Path(__file__).parents[2]


async def test_a_stop_ends_the_wait_for_a_server_that_is_away() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    async with (
        asyncio.timeout(60),
        connected(Settings(nats_url=f"nats://127.0.0.1:{free_port()}"), "test", stop) as bus,
    ):
        assert bus is None
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("module", ["services.builder.worker", "services.scheduler.sweeper"])
async def test_a_doer_that_waits_for_the_server_ends_when_it_is_told_to(module: str, tmp_path: Path) -> None:
    environment = {**os.environ, "STEER_NATS_URL": f"nats://127.0.0.1:{free_port()}"}
    environment |= {"STEER_WORKER_NAME": "w-0", "STEER_WORKER_DATA": str(tmp_path)}
    environment |= {"STEER_REGISTRY_URL": "http://127.0.0.1:1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module), cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(60):
        async for line in process.stdout:
            if b"no NATS server answers" in line:
                break
        process.terminate()
        assert await process.wait() == 0
