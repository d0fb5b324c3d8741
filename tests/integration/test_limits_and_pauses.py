"""A log without room, and leaders that stand still: the short of what `tests.faults` does at length."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.cli.security import SERVICES
from shared.errors import Unavailable
from shared.model.node import NodeControl
from shared.model.service import Term
from shared.runtime import encode, records, streams
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.encode import sequence_in
from shared.runtime.follower import Follower
from shared.runtime.jetstream import api
from shared.runtime.lease import NO_ANSWER
from shared.subjects import LEASE_BUCKET, NODE_CONTROL, STREAM, TERM
from tests.integration.answering import everybody_answers, publish_bad_records
from tests.integration.running import Start, ask, counts, eventually, received, stop_process

KEY = ("shop", "web", "production")
ROOT = Path(__file__).parents[2]
Process = asyncio.subprocess.Process
Spawn = Callable[[], Awaitable[Process]]


async def test_a_log_that_has_reached_its_size_refuses_and_the_service_says_so_waits_and_goes_on(
    bus: Bus, start: Start
) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    found = await api(bus, f"STREAM.INFO.{STREAM}")
    small = {**found["config"], "max_bytes": found["state"]["bytes"] + 8_000}
    await api(bus, f"STREAM.UPDATE.{STREAM}", small)
    with capture_logs() as lines:
        await ask(bus, KEY, 40)
        await eventually(lambda: [each for each in lines if each["event"].startswith("a commit was not stored")])
        written = await counts(bus, KEY)
        assert written == list(range(1, len(written) + 1)) and 0 < len(written) < 40
        with pytest.raises(Unavailable, match="maximum bytes exceeded"):
            for _ in range(100):  # the last room is less than a commit takes, and more than a small record
                await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    await api(bus, f"STREAM.UPDATE.{STREAM}", found["config"])
    await eventually(lambda: one.state.counted.get(KEY) == 40)
    assert await counts(bus, KEY) == list(range(1, 41))


async def test_an_instance_that_may_not_write_its_lease_says_why_nobody_leads(bus: Bus, start: Start) -> None:
    name = f"KV_{LEASE_BUCKET}"
    config = (await api(bus, f"STREAM.INFO.{name}"))["config"]
    await api(bus, f"STREAM.UPDATE.{name}", {**config, "max_bytes": 1})
    with capture_logs() as lines:
        one = await start()
        await eventually(lambda: [each for each in lines if each["event"].startswith("the lease cannot be written")])
    assert any("maximum bytes exceeded" in str(each.get("reason")) for each in lines)
    await api(bus, f"STREAM.UPDATE.{name}", config)
    await eventually(lambda: one.leading)


async def test_a_leader_whose_server_answers_nothing_says_so_and_leads_again(
    server: EmbeddedServer, start: Start
) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    assert server.process is not None
    with capture_logs() as lines:
        await stop_process(server.process.pid)
        await eventually(lambda: [each for each in lines if each.get("reason") == NO_ANSWER])
        server.process.send_signal(signal.SIGCONT)
    await eventually(lambda: one.leading and one.instance.lease.held)


@pytest.fixture
async def spawn(server: EmbeddedServer, bus: Bus, tmp_path: Path) -> AsyncIterator[Spawn]:
    """Start a process with an instance of each service; what is left of them at the end is killed."""
    processes: list[Process] = []

    async def spawn() -> Process:
        environment = {**os.environ, "STEER_NATS_URL": server.url, "STEER_LEASE_TTL_SECONDS": "1"}
        with (tmp_path / f"services-{len(processes)}.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.integration.all_services"),
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=output,
            )
        processes.append(process)
        return process

    yield spawn
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()


async def leaders(bus: Bus) -> set[int]:
    """The processes whose terms are the newest, once every service has one."""
    terms = [await records.get(bus, TERM, (each.name,)) for each in SERVICES]
    holders = [each.record.holder for each in terms if each is not None and isinstance(each.record, Term)]
    return {int(holder.split("-")[-2]) for holder in holders} if len(holders) == len(SERVICES) else set()


async def test_the_leaders_of_all_four_services_stand_still_and_write_nothing_more_when_they_continue(
    bus: Bus, spawn: Spawn
) -> None:
    one = await spawn()
    await eventually(lambda: led_by(bus, one), 60)
    two = await spawn()
    await publish_bad_records(bus, "before")
    await everybody_answers(bus, "before")
    await stop_process(one.pid)
    await publish_bad_records(bus, "meanwhile")
    await eventually(lambda: led_by(bus, two), 60)
    one.send_signal(signal.SIGCONT)
    await publish_bad_records(bus, "after")
    await everybody_answers(bus, "meanwhile")
    await everybody_answers(bus, "after")
    assert one.returncode is None, "it goes on as a standby"
    assert await terms_that_went_back(bus) == []


async def led_by(bus: Bus, process: Process) -> bool:
    return await leaders(bus) == {process.pid}


async def terms_that_went_back(bus: Bus) -> list[tuple[str, int]]:
    """What a deposed leader has written after its successor has opened a term."""
    info = await api(bus, f"STREAM.INFO.{STREAM}")
    follower = Follower(bus, streams.world_subjects(), start=1)
    await follower.start()
    newest: dict[str, int] = {}
    found: list[tuple[str, int]] = []
    for message in await received(follower, int(info["state"]["messages"])):
        headers: Any = message.headers or {}
        service, term = headers.get(encode.SERVICE, ""), sequence_in(headers, encode.TERM)
        if term and term < newest.get(service, 0):
            found.append((message.subject, message.sequence))
        newest[service] = max(newest.get(service, 0), term)
    await follower.stop()
    assert set(newest) >= {each.name for each in SERVICES}
    return found
