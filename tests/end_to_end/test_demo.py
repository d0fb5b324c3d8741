"""`steer demo`, whole and interrupted."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import psutil

from services.cli.exits import Exit
from tests.end_to_end.running import ROOT, environment


async def demo(tmp_path: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "demo", *options),
        cwd=ROOT,
        env=environment() | {"TMPDIR": str(tmp_path)},
        stdout=PIPE,
        stderr=PIPE,
    )


async def test_the_demo_shows_a_switch_without_a_failed_request_and_a_repair(tmp_path: Path) -> None:
    process = await demo(tmp_path, "-o", "json")
    out, err = await asyncio.wait_for(process.communicate(), 220)
    assert process.returncode == Exit.OK, err.decode()
    told = json.loads(out)
    assert told["requests"]["failed"] == []
    assert {"/ v1", "/ v2", "/products v1", "/products v2"} == set(told["requests"]["answers"])
    assert len(told["steps"]) == 6 and all(step["subjects"] for step in told["steps"])
    assert [route["path_prefix"] for route in told["routes"]["record"]["routes"]] == ["/products", ""]
    assert told["placement"]["decisions"][0]["reasons"]["placement"]["picks"]
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - one look, in a coroutine


async def test_an_interrupted_demo_stops_everything_and_shows_the_logs(tmp_path: Path) -> None:
    process = await demo(tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while b"Deploy release 1" not in await process.stdout.readline():
            continue
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == Exit.INTERRUPTED
    assert b"== scheduler.log" in err and b"== agent-n1.log" in err
    assert psutil.wait_procs(started, timeout=60)[1] == []
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - one look, in a coroutine
