"""Real processes of the toy service: killed, stopped and continued. What it counts is counted once."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from shared.model.deployment import Scale
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.subjects import SCALE, TERM
from tests.integration.running import ask, counts, eventually, stop_process

KEY = ("shop", "web", "production")
ROOT = Path(__file__).parents[2]
Process = asyncio.subprocess.Process
Spawn = Callable[[], Awaitable[Process]]


@pytest.fixture
async def spawn(server: EmbeddedServer, bus: Bus, tmp_path: Path) -> AsyncIterator[Spawn]:
    """Start processes of the toy; what is left of them at the end is killed."""
    processes: list[Process] = []

    async def spawn() -> Process:
        environment = {**os.environ, "STEER_NATS_URL": server.url, "STEER_LEASE_TTL_SECONDS": "2"}
        with (tmp_path / f"toy-{len(processes)}.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.integration.toy", cwd=ROOT, env=environment, stdout=output, stderr=output
            )
        processes.append(process)
        return process

    yield spawn
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def term(bus: Bus) -> int:
    version = await records.get(bus, TERM, ("scheduler",))
    return version.sequence if version is not None else 0


async def counted(bus: Bus) -> int:
    version = await records.get(bus, SCALE, KEY)
    return version.record.effective_replicas if version is not None and isinstance(version.record, Scale) else 0


async def reached(bus: Bus, count: int) -> None:
    async def there() -> bool:
        return await counted(bus) >= count

    await eventually(there)


async def writers(bus: Bus) -> list[int]:
    """The term of each version of the counter, in the order of the log."""
    return [int((message.headers or {})["Steer-Term"]) for message in await records.history(bus, SCALE.subject(*KEY))]


async def test_a_leader_killed_with_9_is_followed_by_the_standby(bus: Bus, spawn: Spawn) -> None:
    one = await spawn()
    await eventually(lambda: term(bus))
    await spawn()
    await ask(bus, KEY, 120)
    await reached(bus, 20)
    one.kill()
    await one.wait()
    await ask(bus, KEY, 150)  # however far the first one has come
    await reached(bus, 150)
    assert await counts(bus, KEY) == list(range(1, 151))
    assert len(set(await writers(bus))) >= 2


async def test_a_leader_that_was_stopped_and_continues_writes_nothing_more_under_its_old_term(
    bus: Bus, spawn: Spawn
) -> None:
    one = await spawn()
    first: int = await eventually(lambda: term(bus))
    await spawn()
    await ask(bus, KEY, 150)
    await reached(bus, 20)
    await stop_process(one.pid)
    await ask(bus, KEY, 180)  # however far the first one has come

    async def taken_over() -> bool:
        return await term(bus) > first

    await eventually(taken_over)
    one.send_signal(signal.SIGCONT)
    await reached(bus, 180)
    assert await counts(bus, KEY) == list(range(1, 181))
    terms = await writers(bus)
    assert terms == sorted(terms)
    assert len(set(terms)) >= 2


async def test_a_process_that_is_told_to_stop_hands_over_and_exits_with_0(bus: Bus, spawn: Spawn) -> None:
    one = await spawn()
    first: int = await eventually(lambda: term(bus))
    await spawn()
    await ask(bus, KEY, 100)
    await reached(bus, 20)
    one.terminate()
    assert await asyncio.wait_for(one.wait(), 60) == 0
    await ask(bus, KEY, 120)
    await reached(bus, 120)
    assert await counts(bus, KEY) == list(range(1, 121))
    assert await term(bus) > first


async def test_a_setting_that_cannot_be_used_ends_the_process_with_2(server: EmbeddedServer) -> None:
    environment = {**os.environ, "STEER_REPLICAS": "two", "STEER_NATS_URL": server.url}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.toy", cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"STEER_REPLICAS='two': not one of 1, 3, 5" in errors
