"""The life of replicas under a real agent: started, probed, killed, stopped, reported."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, MutableMapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

from shared import codec, subjects
from shared.model.live import NodeSample
from shared.model.node import Fleet
from shared.model.run import Healthcheck, PortSpec
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.settings import Settings
from tests.integration.one_node import HTTP, NODE, PYTHON, OneNode, until

QUICK = Healthcheck(interval_seconds=0.1, timeout_seconds=2, unhealthy_threshold=2)

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


async def test_a_replica_starts_becomes_healthy_and_is_reported_failed_with_its_exit_code_when_killed(
    node: OneNode,
) -> None:
    node.start()
    sequence = await node.assign("a-1", "web.py", ports=HTTP, healthcheck=QUICK)
    healthy = await node.becomes("a-1", "healthy")
    assert healthy.assignment_sequence == sequence
    assert healthy.healthy_since == healthy.since
    assert f"listening on {healthy.ports['http']}" in node.output("a-1")
    os.kill(node.pid("a-1"), signal.SIGKILL)
    failed = await node.becomes("a-1", "failed")
    assert (failed.exit_code, failed.message) == (137, "ended by SIGKILL")
    assert (failed.ports, failed.healthy_since) == (healthy.ports, healthy.healthy_since)
    states = [report.state for report in await node.history("a-1")]
    assert states == [state for state in ("starting", "running", "healthy", "failed") if state in states]
    assert {"healthy", "failed"} <= set(states)


async def test_an_exit_is_failed_whatever_its_code_and_nothing_is_started_again(node: OneNode) -> None:
    node.start()
    await node.assign("a-1", command=(PYTHON, "-c", "print('ran')"))
    await node.assign("a-2", command=(PYTHON, "-c", "raise SystemExit(3)"))
    assert (await node.becomes("a-1", "failed")).exit_code == 0
    assert (await node.becomes("a-2", "failed")).exit_code == 3
    again = await node.assign("a-1", command=(PYTHON, "-c", "print('ran')"), reason="a newer version")
    await node.becomes("a-1", "failed", again)
    await node.stop()
    node.start()
    newest = await node.assign("a-1", command=(PYTHON, "-c", "print('ran')"), reason="the newest version")
    await node.becomes("a-1", "failed", newest)
    assert node.output("a-1") == "ran\n"


async def test_a_replica_knows_its_ports_its_place_and_its_variables_and_nothing_of_the_agents(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEER_NATS_NKEY", "secret")
    (node.env_dir / "shop.env").write_text("# from the node\n\nTOKEN=a=b\nCOLOUR=red\n")
    node.start()
    show = "import os; print(sorted((k, v) for k, v in os.environ.items() if k not in {'PATH', 'HOME'}), os.getcwd())"
    (node.apps / "shop").mkdir()
    await node.assign(
        "a-1",
        image="exec:shop",
        command=(PYTHON, "-c", show),
        ports=(*HTTP, PortSpec(name="side-car", container_port=9)),
        env={"COLOUR": "blue"},
        env_from=("shop.env",),
    )
    ports = (await node.becomes("a-1", "failed")).ports
    shown = node.output("a-1")
    for variable, value in {
        "PORT": ports["http"],
        "STEER_PORT_HTTP": ports["http"],
        "STEER_PORT_SIDE_CAR": ports["side-car"],
        "STEER_NODE": NODE,
        "STEER_ASSIGNMENT": "a-1",
        "STEER_ENVIRONMENT": "shop/web/production",
        "TOKEN": "a=b",
        "COLOUR": "blue",
    }.items():
        assert f"('{variable}', '{value}')" in shown
    assert "secret" not in shown
    assert shown.rstrip().endswith(str((node.apps / "shop").resolve()))


async def test_what_cannot_be_started_is_failed_with_the_reason(node: OneNode) -> None:
    node.start()
    await node.assign("a-1", image="exec:../../etc")
    await node.assign("a-2", command=("./missing",))
    assert "image 'exec:../../etc'" in (await node.becomes("a-1", "failed")).message
    assert "cannot run './missing'" in (await node.becomes("a-2", "failed")).message


async def test_health_comes_and_goes_and_comes_back_by_http(node: OneNode) -> None:
    node.start()
    await node.assign("a-1", "web.py", ports=HTTP, healthcheck=QUICK)
    first = await node.becomes("a-1", "healthy")
    (node.apps / "sick").touch()
    sick = await node.becomes("a-1", "unhealthy")
    assert "answered 503" in sick.message
    assert (sick.healthy_since, sick.ports) == (first.healthy_since, first.ports)
    (node.apps / "sick").unlink()
    well = await node.becomes("a-1", "healthy")
    assert well.message == ""
    assert well.healthy_since is not None
    assert first.healthy_since is not None
    assert well.healthy_since > first.healthy_since


async def test_tcp_and_exec_probes_make_healthy_or_say_why_not(node: OneNode) -> None:
    node.start()
    never: dict[str, Any] = {"interval_seconds": 0.1, "grace_period_seconds": 0.0, "unhealthy_threshold": 1}
    seen = "import os, sys; sys.exit(not os.environ['PORT'] or 'STEER_ENVIRONMENT' not in os.environ)"
    await node.assign("tcp-1", "web.py", ports=HTTP, healthcheck=Healthcheck(type="tcp", interval_seconds=1))
    await node.assign("tcp-2", "sleep.py", ports=HTTP, healthcheck=Healthcheck(type="tcp", timeout_seconds=30, **never))
    await node.assign("tcp-3", "sleep.py", healthcheck=Healthcheck(**never))
    good = Healthcheck(type="exec", command=(PYTHON, "-c", seen))
    await node.assign("exec-1", "sleep.py", ports=HTTP, healthcheck=good)
    bad = Healthcheck(type="exec", command=(PYTHON, "-c", "raise SystemExit(4)"), timeout_seconds=30, **never)
    await node.assign("exec-2", "sleep.py", healthcheck=bad)
    slow = Healthcheck(type="exec", command=(PYTHON, "sleep.py"), timeout_seconds=0.5, **never)
    await node.assign("exec-3", "sleep.py", healthcheck=slow)
    missing = Healthcheck(type="exec", command=("no-such-program-anywhere",), **never)
    await node.assign("exec-4", "sleep.py", healthcheck=missing)
    await node.becomes("tcp-1", "healthy")
    await node.becomes("exec-1", "healthy")
    assert "tcp probe" in (await node.becomes("tcp-2", "unhealthy")).message
    assert "has no port" in (await node.becomes("tcp-3", "unhealthy")).message
    assert "exited with 4" in (await node.becomes("exec-2", "unhealthy")).message
    assert "not on the PATH" in (await node.becomes("exec-4", "unhealthy")).message
    assert "no answer within 0.5 s" in (await node.becomes("exec-3", "unhealthy")).message


async def test_a_drained_replica_keeps_running_and_a_stopped_one_ends(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    drain = await node.assign("a-1", desired="drain")
    answer = await node.becomes("a-1", "healthy", drain)
    assert answer.assignment_sequence == drain
    pid = node.pid("a-1")
    assert psutil.pid_exists(pid)
    stop = await node.assign("a-1", desired="stop")
    stopped = await node.becomes("a-1", "stopped", stop)
    assert (stopped.exit_code, stopped.message) == (143, "stopped")
    assert not psutil.pid_exists(pid)


async def test_what_ignores_the_stop_is_killed_after_the_grace_with_all_that_it_started(node: OneNode) -> None:
    node.start()
    await node.assign("a-1", "stubborn.py", stop_grace_seconds=0.3)
    (node.apps / "sleep.py").write_text((node.apps / "stubborn.py").read_text())
    await node.assign("a-2", "parent.py", stop_grace_seconds=0.3)

    async def up() -> bool:
        return "up" in node.output("a-1") and "up" in node.output("a-2")

    await until(up)
    group = [process for process in psutil.process_iter() if os.getpgid(process.pid) == node.pid("a-2")]
    assert len(group) == 2
    for name in ("a-1", "a-2"):
        await node.assign(name, "x", desired="stop")
    stopped = await node.becomes("a-1", "stopped")
    assert (stopped.exit_code, stopped.message) == (137, "killed after the grace of 0.3 s")
    assert "killed" in (await node.becomes("a-2", "stopped")).message

    async def gone() -> bool:
        return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in group)

    await until(gone)


async def test_what_a_dead_replica_has_left_behind_is_ended_too(node: OneNode) -> None:
    node.start()
    await node.assign("a-1", "parent.py")

    async def up() -> bool:
        return "up" in node.output("a-1")

    await until(up)
    leader = psutil.Process(node.pid("a-1"))
    (child,) = leader.children()
    leader.kill()
    await node.becomes("a-1", "failed")

    async def gone() -> bool:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE

    await until(gone)


async def test_a_stop_for_what_never_ran_is_answered(node: OneNode) -> None:
    node.start()
    stop = await node.assign("a-1", desired="stop")
    drain = await node.assign("a-2", desired="drain")
    assert (await node.becomes("a-1", "stopped", stop)).exit_code is None
    assert "never started" in (await node.becomes("a-2", "stopped", drain)).message


async def test_a_tombstone_stops_the_replica_and_deletes_its_instance(node: OneNode) -> None:
    node.start()
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    pid = node.pid("a-1")
    await node.delete("a-1")

    async def gone() -> bool:
        return await node.instance("a-1") is None

    await until(gone)
    assert not psutil.pid_exists(pid)
    assert node.journal() == []


async def test_not_before_holds_a_start_back_and_the_wait_is_reported(node: OneNode) -> None:
    node.start()
    await node.assign("a-1", not_before=datetime.now(UTC) + timedelta(hours=1))
    assert "waits until" in (await node.becomes("a-1", "pending")).message
    not_before = datetime.now(UTC) + timedelta(seconds=0.5)
    await node.assign("a-1", not_before=not_before)
    healthy = await node.becomes("a-1", "healthy")
    assert healthy.since >= not_before


async def test_a_bad_assignment_is_ignored_and_what_runs_goes_on(node: OneNode, events: Events) -> None:
    node.start()
    await node.assign("a-1")
    first = await node.becomes("a-1", "healthy")
    await node.bus.js.publish(subjects.ASSIGNMENT.subject(NODE, "a-1"), b'{"desired": "explode"}')
    await node.bus.js.publish(subjects.ASSIGNMENT.subject(NODE, "a-2"), b"\xff")
    await node.bus.js.publish(subjects.ASSIGNMENT.subject(NODE, "A_3"), b"{}")
    await node.assign("a-4")
    await node.becomes("a-4", "healthy")
    await node.stop()
    node.start()
    await node.assign("a-5")
    await node.becomes("a-5", "healthy")
    assert await node.instance("a-1") == first
    assert psutil.pid_exists(node.pid("a-1"))
    reasons = [event["reason"] for event in events if event["event"].startswith("an assignment cannot be read")]
    assert any(reason.startswith("steer.assignment.n1.a-1: ") for reason in reasons)
    assert any("desired: Input should be 'run', 'drain' or 'stop'" in reason for reason in reasons)


async def test_the_heartbeat_tells_what_each_replica_uses_at_the_interval_of_the_fleet(node: OneNode) -> None:
    samples: asyncio.Queue[NodeSample] = asyncio.Queue()

    async def take(message: object) -> None:
        samples.put_nowait(codec.validate(NodeSample, "sample", message.data))  # type: ignore[attr-defined]

    await node.bus.nc.subscribe(subjects.live_node(NODE), cb=take)
    node.start()
    first = await asyncio.wait_for(samples.get(), 60)
    assert first.interval_seconds == 2
    assert first.memory_used_mb > 0
    await node.assign("a-1")
    await node.becomes("a-1", "healthy")
    await records.put(node.bus, subjects.FLEET, (), Fleet(heartbeat_interval_seconds=5))
    sample = first
    while sample.interval_seconds != 5:
        sample = await asyncio.wait_for(samples.get(), 60)
    assert sample.instances["a-1"].memory_mb > 1
