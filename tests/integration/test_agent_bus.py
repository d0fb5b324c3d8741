"""An agent and its bus: servers that are away, lost logs, a stream that refuses, a node taken out of service."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

from shared import subjects
from shared.model.node import Node
from shared.runtime import bus as buses
from shared.runtime import records, streams
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer, free_port
from shared.runtime.jetstream import api
from shared.runtime.settings import Settings
from tests.integration.one_node import HTTP, NODE, OneNode, has_gone, until

Events = list[MutableMapping[str, Any]]


@pytest.fixture
async def node(bus: Bus, settings: Settings, tmp_path: Path) -> AsyncIterator[OneNode]:
    node = OneNode(bus, settings, tmp_path)
    yield node
    await node.clean()


@pytest.fixture
def events() -> Iterator[Events]:
    """What is logged, as values."""
    with structlog.testing.capture_logs() as events:
        yield events


def restart(server: EmbeddedServer, tmp_path: Path, *, emptied: bool = False) -> None:
    if emptied:
        shutil.rmtree(tmp_path / "jetstream")
    server.start(tmp_path / "jetstream", server.port)


async def empty(settings: Settings, server: EmbeddedServer, tmp_path: Path) -> None:
    """A server that has lost everything, its streams declared anew."""
    server.stop()
    restart(server, tmp_path, emptied=True)
    fresh = await buses.connect(settings, "fresh", patience=60)
    await streams.ensure(fresh)
    await fresh.close()


async def test_while_the_server_is_away_replicas_run_and_the_newest_report_comes_later(
    node: OneNode, server: EmbeddedServer, tmp_path: Path
) -> None:
    node.start()
    await node.assign("a-1")
    await node.assign("a-2")
    await node.becomes("a-1", "healthy")
    healthy = await node.becomes("a-2", "healthy")
    server.stop()
    os.kill(node.pid("a-1"), signal.SIGKILL)

    async def noticed() -> bool:
        return [entry.state for entry in node.journal()] == ["failed", "healthy"]

    await until(noticed)
    restart(server, tmp_path)
    await node.becomes("a-1", "failed")
    assert psutil.pid_exists(node.pid("a-2"))
    stop = await node.assign("a-2", desired="stop")
    await node.becomes("a-2", "stopped", stop)
    assert (await node.history("a-2"))[-2] == healthy


async def test_an_agent_that_starts_without_a_server_watches_what_runs_and_waits_for_it(
    node: OneNode, server: EmbeddedServer, tmp_path: Path
) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    server.stop()
    node.start()
    os.kill(node.pid("a-1"), signal.SIGKILL)

    async def noticed() -> bool:
        return [entry.state for entry in node.journal()] == ["failed"]

    await until(noticed)
    restart(server, tmp_path)
    await node.becomes("a-1", "failed")


async def test_an_agent_that_waits_for_its_server_stops_when_it_is_told(node: OneNode, server: EmbeddedServer) -> None:
    server.stop()
    node.start()
    await node.stop()


async def test_an_empty_log_stops_nothing_and_the_node_registers_again(
    node: OneNode, server: EmbeddedServer, tmp_path: Path, events: Events
) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    pid = node.pid("a-1")
    await empty(node.settings, server, tmp_path)
    await node.registered()
    await node.assign("a-2")
    await node.becomes("a-2", "healthy")
    assert psutil.pid_exists(pid)
    assert await node.instance("a-1") is None
    assert any("without an assignment is kept" in event["event"] for event in events)
    await node.assign("a-1", desired="stop")
    await node.becomes("a-1", "stopped")
    await has_gone(pid)


async def test_a_new_log_stops_nothing_at_the_start_of_an_agent_either(
    node: OneNode, server: EmbeddedServer, tmp_path: Path
) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    await empty(node.settings, server, tmp_path)
    node.start()
    await node.assign("a-2")
    await node.becomes("a-2", "healthy")
    assert psutil.pid_exists(node.pid("a-1"))


async def test_what_an_empty_log_left_running_is_kept_by_the_loads_that_follow_until_the_agent_is_started_anew(
    node: OneNode, server: EmbeddedServer, tmp_path: Path
) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    pid = node.pid("a-1")
    await empty(node.settings, server, tmp_path)
    await node.assign("a-2")
    await node.becomes("a-2", "healthy")
    await _load_anew(node, server, tmp_path, "a-2")
    await node.assign("a-3")
    await node.becomes("a-3", "healthy")
    assert psutil.pid_exists(pid)
    await node.stop()
    node.start()
    await has_gone(pid)


async def test_what_has_no_assignment_is_stopped_after_a_load_of_a_log_that_knows_the_node(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    pid = node.pid("a-1")
    await node.bus.js.purge_stream(subjects.STREAM, subject=subjects.ASSIGNMENT.subject(NODE, "a-1"))
    node.start()
    await has_gone(pid)

    async def gone() -> bool:
        return await node.instance("a-1") is None and node.journal() == []

    await until(gone)


async def test_a_tombstone_that_came_while_no_agent_ran_counts(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    pid = node.pid("a-1")
    await node.delete("a-1")
    node.start()
    await has_gone(pid)

    async def gone() -> bool:
        return await node.instance("a-1") is None

    await until(gone)


async def test_what_a_lost_journal_does_not_know_is_failed_and_not_started_twice(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    pid = node.pid("a-1")

    async def up() -> bool:
        return node.output("a-1") == "up\n"

    await until(up)
    shutil.rmtree(node.data / "replicas")
    try:
        node.start()
        assert "no trace" in (await node.becomes("a-1", "failed")).message
        assert node.output("a-1") == "up\n"
    finally:
        os.killpg(pid, signal.SIGKILL)


async def test_a_report_that_the_stream_refuses_does_not_end_the_agent(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.start()
    await node.registered()
    await node.assign("a-1", ports=HTTP)
    await node.becomes("a-1", "healthy")
    # What a server with a smaller max_payload answers; the limit is checked before a message is sent.
    monkeypatch.setattr(Bus, "check_size", _refuse(Bus.check_size, "a-2"))
    await node.assign("a-2")
    await node.assign("a-3")
    await node.becomes("a-3", "healthy")
    assert await node.instance("a-2") is None
    monkeypatch.undo()
    drain = await node.assign("a-2", desired="drain")
    await node.becomes("a-2", "healthy", drain)


def _refuse(check: object, name: str) -> object:
    from shared.errors import InvalidRecord, Problem

    def refuse(self: Bus, subject: str, body: bytes, header_bytes: int) -> None:
        if subject == subjects.INSTANCE.subject(NODE, name):
            raise InvalidRecord(subject, (Problem("", "too large"),))
        check(self, subject, body, header_bytes)  # type: ignore[operator]

    return refuse


async def test_a_node_taken_out_of_service_registers_only_at_the_next_start(
    node: OneNode, server: EmbeddedServer, tmp_path: Path, events: Events
) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await records.put(node.bus, subjects.NODE, (NODE,), None)
    # Something makes the agent load anew: here, that it finds a log older than what it has seen.
    await _load_anew(node, server, tmp_path, "a-1")

    async def said() -> bool:
        return any("taken out of service" in event["event"] for event in events)

    await until(said)
    version = await records.get(node.bus, subjects.NODE, (NODE,))
    assert version is not None
    assert version.record is None
    assert psutil.pid_exists(node.pid("a-1"))
    await node.stop()
    node.start()
    assert (await node.registered()).drivers == ("exec",)


async def _load_anew(node: OneNode, server: EmbeddedServer, tmp_path: Path, name: str) -> None:
    """Put the log back to what it was before one more message was received."""
    server.stop()
    shutil.copytree(tmp_path / "jetstream", tmp_path / "copy", symlinks=True)
    restart(server, tmp_path)
    await node.bus.connected.wait()
    drain = await node.assign(name, desired="drain")
    await node.becomes(name, "healthy", drain)
    server.stop()
    shutil.rmtree(tmp_path / "jetstream")
    (tmp_path / "copy").rename(tmp_path / "jetstream")
    restart(server, tmp_path)

    async def follows() -> bool:
        names = (await api(node.bus, f"CONSUMER.NAMES.{subjects.STREAM}"))["consumers"]
        return any(name.startswith(f"agent-{NODE}") for name in names)

    # That the log is shorter than it was is seen as long as nobody has written more than it lost.
    await until(follows)


async def test_a_node_that_is_registered_as_it_is_writes_nothing_and_a_changed_one_does(node: OneNode) -> None:
    node.start()
    await node.registered()
    await node.stop()
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    assert len(await records.history(node.bus, subjects.NODE.subject(NODE))) == 1
    await node.stop()
    node.start(labels={"region": "eu"})

    async def changed() -> bool:
        version = await records.get(node.bus, subjects.NODE, (NODE,))
        return version is not None and isinstance(version.record, Node) and version.record.labels == {"region": "eu"}

    await until(changed)


async def test_a_bad_record_of_the_node_is_written_anew_and_nothing_is_stopped(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await node.stop()
    await node.bus.js.publish(subjects.NODE.subject(NODE), b'{"capacity": "plenty"}')
    node.start()
    await node.assign("a-2")
    await node.becomes("a-2", "healthy")
    assert (await node.registered()).drivers == ("exec",)
    assert psutil.pid_exists(node.pid("a-1"))


async def test_replicas_are_stopped_on_exit_where_that_is_asked_for(node: OneNode) -> None:
    node.start(stop_replicas_on_exit=True)
    sequence = await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    pid = node.pid("a-1")
    await node.stop()
    assert not psutil.pid_exists(pid)
    stopped = await node.instance("a-1")
    assert stopped is not None
    assert (stopped.state, stopped.assignment_sequence) == ("stopped", sequence)


async def test_an_agent_answers_about_its_health_and_its_replicas(
    node: OneNode, server: EmbeddedServer, tmp_path: Path
) -> None:
    port = free_port()
    node.settings = Settings(nats_url=server.url, metrics_port=port)
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    assert await ask(port, "/readyz") == (200, "ok\n")
    assert 'steer_agent_replicas{node="n1",state="healthy"} 1.0' in (await ask(port, "/metrics"))[1]
    server.stop()

    async def away() -> bool:
        return await ask(port, "/readyz") == (503, "NATS is away\n")

    await until(away)
    assert (await ask(port, "/healthz"))[0] == 200
    restart(server, tmp_path)


async def ask(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body
