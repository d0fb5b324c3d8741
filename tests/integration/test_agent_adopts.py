"""What an agent finds when it starts: replicas that run, ended or were never written down, and strangers."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from shared.errors import ConfigurationError
from shared.model.run import Healthcheck
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.settings import Settings
from tests.integration.one_node import HTTP, NODE, OneNode, has_gone, until


@pytest.fixture
async def node(bus: Bus, settings: Settings, tmp_path: Path) -> AsyncIterator[OneNode]:
    node = OneNode(bus, settings, tmp_path)
    yield node
    await node.clean()


def spawn(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *arguments], env={**os.environ, **environment}, stdout=subprocess.DEVNULL)


async def test_the_next_agent_adopts_what_runs_without_a_new_report(node: OneNode) -> None:
    node.start()
    check = Healthcheck(interval_seconds=0.1)
    await node.assign("a-1", "web.py", ports=HTTP, healthcheck=check)
    first = await node.becomes("a-1", "healthy")
    pid = node.pid("a-1")
    reports = len(await node.history("a-1"))
    await node.stop()
    assert psutil.pid_exists(pid)
    node.start()
    await node.assign("a-2")
    await node.becomes("a-2", "healthy")
    assert await node.instance("a-1") == first
    assert (node.pid("a-1"), len(await node.history("a-1"))) == (pid, reports)
    (node.apps / "sick").touch()
    await node.becomes("a-1", "unhealthy")
    stop = await node.assign("a-1", desired="stop")
    await node.becomes("a-1", "stopped", stop)
    await has_gone(pid)


async def test_an_agent_in_a_process_of_its_own_is_killed_and_its_replica_is_adopted_then_dies_with_an_unknown_code(
    node: OneNode, server: EmbeddedServer
) -> None:
    options = ("--node", NODE, "--exec-root", str(node.apps))
    agent = spawn("-m", "services.agent", *options, STEER_NATS_URL=server.url, STEER_AGENT_DATA=str(node.data))
    try:
        await node.assign("a-1")
        await node.becomes("a-1", "healthy")
    finally:
        agent.kill()
        agent.wait()
    pid = node.pid("a-1")
    node.start()
    drain = await node.assign("a-1", desired="drain")
    await node.becomes("a-1", "healthy", drain)
    os.kill(pid, signal.SIGKILL)
    failed = await node.becomes("a-1", "failed")
    assert failed.exit_code is None
    assert "unknown" in failed.message


async def test_what_ended_while_no_agent_watched_is_reported_failed(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    os.kill(node.pid("a-1"), signal.SIGKILL)
    node.start()
    await node.becomes("a-1", "failed")


async def test_a_start_whose_process_was_not_written_down_is_found_again(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    pid = node.pid("a-1")
    await node.stop()
    (path,) = (node.data / "replicas").glob("*.json")
    (entry,) = node.journal()
    started = entry.model_copy(update={"pid": None, "process_started_at": None, "state": "starting"})
    path.write_text(started.model_dump_json())
    node.start()
    stop = await node.assign("a-1", desired="stop")
    assert (await node.becomes("a-1", "stopped", stop)).message == "stopped"
    await has_gone(pid)


async def test_a_replica_is_known_by_its_variables_where_the_clock_was_set_meanwhile(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    first = await node.becomes("a-1", "healthy")
    await node.stop()
    (path,) = (node.data / "replicas").glob("*.json")
    (entry,) = node.journal()
    path.write_text(entry.model_copy(update={"process_started_at": 1.0}).model_dump_json())
    node.start()
    drain = await node.assign("a-1", desired="drain")
    assert (await node.becomes("a-1", "healthy", drain)).since == first.since


async def test_a_reused_pid_is_not_taken_for_the_replica(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    os.kill(node.pid("a-1"), signal.SIGKILL)
    stranger = spawn(str(node.apps / "sleep.py"))
    try:
        (path,) = (node.data / "replicas").glob("*.json")
        (entry,) = node.journal()
        path.write_text(entry.model_copy(update={"pid": stranger.pid, "process_started_at": 1.0}).model_dump_json())
        node.start()
        await node.becomes("a-1", "failed")
        await node.delete("a-1")

        async def gone() -> bool:
            return await node.instance("a-1") is None

        await until(gone)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_two_agents_never_share_a_directory(node: OneNode) -> None:
    node.start()
    await node.registered()
    with pytest.raises(ConfigurationError, match="another agent uses this directory"):
        await asyncio.wait_for(node.start(), 60)
