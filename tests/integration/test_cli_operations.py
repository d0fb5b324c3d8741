"""`steer scale`, `cordon`, `drain`, `volume move`, `snapshot`, `history`, `events` and `sweep` against a real server."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.cli import sources
from services.cli.exits import Exit
from services.scheduler.service import service
from shared import subjects
from shared.model.deployment import ActiveRelease, Deployment, Transition
from shared.model.environment import Environment, Replicas
from shared.model.node import Capacity, Node, NodeControl, NodeStatus
from shared.model.service import Notice
from shared.model.snapshot import SnapshotOrder, SnapshotReport
from shared.model.volume import Volume, VolumeStatus
from shared.runtime import records, run
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.settings import Settings
from tests.integration.running import eventually
from tests.integration.steer_command import Steer

ROOT = Path(__file__).parents[2]
ENV = ("shop", "web", "production")
NAME = "shop/web/production"
VOLUME = (*ENV, "data")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
ID = "01arz3ndektsv4rrffq69g5fav"


@pytest.fixture
def steer(server: EmbeddedServer, tmp_path: Path) -> Steer:
    return Steer(server.url, tmp_path / "data")


@asynccontextmanager
async def scheduling(settings: Settings) -> AsyncIterator[None]:
    """A scheduler that runs meanwhile."""
    stop = asyncio.Event()
    task = asyncio.create_task(run.serve(service(), settings, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


async def record(bus: Bus, kind: subjects.Kind, *key: str) -> Any:
    version = await records.get(bus, kind, key)
    return version.record if version is not None else None


async def environment(bus: Bus) -> None:
    await records.put(bus, subjects.ENVIRONMENT, ENV, Environment())


async def node(bus: Bus, name: str, memory: int = 1024) -> None:
    await records.put(bus, subjects.NODE, (name,), Node(capacity=Capacity(cpu_millis=1000, memory_mb=memory)))


@pytest.mark.parametrize(
    ("before", "arguments", "after"),
    [
        ((1, None), ("--min", "2", "--max", "5"), (2, 5)),
        ((2, 5), ("--min", "3"), (3, 5)),
        ((2, 5), ("--max", "9"), (2, 9)),
        ((2, 2), ("--min", "4"), (4, 4)),
        ((2, None), ("--min", "0"), (0, 0)),
    ],
)
async def test_scale_edits_the_range_and_keeps_the_rest(
    steer: Steer,
    bus: Bus,
    before: tuple[int, int | None],
    arguments: tuple[str, ...],
    after: tuple[int, int],
) -> None:
    environment = Environment(replicas=Replicas(min=before[0], max=before[1]), idle_timeout_seconds=7)
    await records.put(bus, subjects.ENVIRONMENT, ENV, environment)
    result = await steer("scale", NAME, *arguments, "-o", "json")
    assert result.json["action"] == "updated"
    found = await record(bus, subjects.ENVIRONMENT, *ENV)
    assert (found.replicas.min, found.replicas.most) == after
    assert found.idle_timeout_seconds == 7
    assert (await steer("scale", NAME, *arguments)).out.endswith("(unchanged)\n")
    assert len(await records.history(bus, subjects.ENVIRONMENT.subject(*ENV))) == 2


async def test_scale_refuses_what_makes_no_sense(steer: Steer, bus: Bus) -> None:
    assert (await steer("scale", NAME, "--min", "1")).code == Exit.FAILED
    await records.put(bus, subjects.ENVIRONMENT, ENV, Environment(replicas=Replicas(min=2, max=5)))
    beyond = await steer("scale", NAME, "--min", "6")
    assert beyond.code == Exit.INVALID and "max (5) is below min (6)" in beyond.err
    assert (await steer("scale", NAME)).code == Exit.INVALID
    assert (await steer("scale", "shop/web", "--min", "1")).code == Exit.INVALID


async def test_cordon_uncordon_and_drain_edit_the_control_of_a_node_that_is_known(steer: Steer, bus: Bus) -> None:
    assert (await steer("cordon", "n1")).code == Exit.FAILED
    await node(bus, "n1")
    assert (await steer("cordon", "n1")).out == "node n1 is cordoned\n"
    assert await record(bus, subjects.NODE_CONTROL, "n1") == NodeControl(schedulable=False)
    assert (await steer("drain", "n1", "--stop-stateful", "-o", "json")).json["action"] == "updated"
    drained = NodeControl(schedulable=False, drain=True, stop_stateful=True)
    assert await record(bus, subjects.NODE_CONTROL, "n1") == drained
    assert (await steer("uncordon", "n1")).code == Exit.OK
    assert await record(bus, subjects.NODE_CONTROL, "n1") == NodeControl()


async def test_a_drain_is_waited_for_and_one_that_does_not_end_says_what_is_left(
    steer: Steer, bus: Bus, settings: Settings
) -> None:
    await node(bus, "n1")
    result = await steer("drain", "n1", "--wait", "--timeout", "0.5")
    assert result.code == Exit.TIMED_OUT and "no scheduler has said so" in result.err
    async with scheduling(settings):
        assert (await steer("drain", "n1", "--wait")).out == "node n1 is drained (unchanged)\n"


async def test_a_dry_run_of_a_drain_changes_nothing_and_says_what_cannot_move(
    steer: Steer, bus: Bus, settings: Settings
) -> None:
    await node(bus, "n1")
    away = await steer("drain", "n1", "--dry-run")
    assert away.code == Exit.UNAVAILABLE and "is the service running?" in away.err
    await records.put(bus, subjects.ENVIRONMENT, ENV, Environment())
    async with scheduling(settings):
        await steer("deploy", NAME, "--image", "exec:v1")

        async def placed() -> bool:
            return bool(await records.load(bus, [subjects.ASSIGNMENT.subject("n1", "*")]))

        await eventually(placed)
        stuck = await steer("drain", "n1", "--dry-run", "-o", "json")
        assert stuck.code == Exit.FAILED
        assert [row["workload"] for row in stuck.json["stuck"]] == [f"environment/{NAME}"]
        told = await steer("drain", "n1", "--dry-run")
        assert "has no place:" in told.out and "excluded" in told.out
        await node(bus, "n2")

        async def moves() -> bool:
            return (await steer("drain", "n1", "--dry-run")).code == Exit.OK

        await eventually(moves)
        (row,) = (await steer("drain", "n1", "--dry-run", "-o", "json")).json["moves"]
        assert row["to"] == "n2"
        assert (await steer("drain", "n9", "--dry-run")).code == Exit.FAILED
    assert await record(bus, subjects.NODE_CONTROL, "n1") is None


async def test_a_volume_moves_to_a_node_that_is_known_and_a_lost_node_is_declared(steer: Steer, bus: Bus) -> None:
    for name in ("n1", "n2"):
        await node(bus, name)
    assert (await steer("volume", "move", NAME, "data", "--to", "n2")).code == Exit.FAILED
    await records.put(bus, subjects.VOLUME_STATUS, VOLUME, VolumeStatus(node="n1"))
    assert (await steer("volume", "move", NAME, "data", "--to", "n9")).code == Exit.FAILED
    moved = await steer("volume", "move", NAME, "data", "--to", "n2")
    assert moved.out == f"volume {NAME}/data moves from n1 to n2\n" and "what is on n1 stays there" in moved.err
    assert await record(bus, subjects.VOLUME, *VOLUME) == Volume(node="n2")
    await steer("volume", "move", NAME, "data", "--to", "n2", "--declare-lost")
    assert await record(bus, subjects.VOLUME, *VOLUME) == Volume(node="n2", lost_node="n1")


async def test_a_snapshot_is_requested_and_snapshots_are_listed_with_the_reason_they_are_kept(
    steer: Steer, bus: Bus
) -> None:
    assert (await steer("snapshot", NAME, "data")).code == Exit.FAILED
    await records.put(bus, subjects.VOLUME_STATUS, VOLUME, VolumeStatus(node="n1"))
    first = (await steer("snapshot", NAME, "data", "-o", "json")).json["record"]["snapshot_request"]
    second = (await steer("snapshot", NAME, "data", "-o", "json")).json["record"]["snapshot_request"]
    assert first < second
    await environment(bus)
    assert "there is no snapshot" in (await steer("snapshots", NAME)).err
    for number, (volume, why) in enumerate({"data": "one of the last 7", "wal": ""}.items()):
        order = SnapshotOrder(
            slot=NOW + timedelta(hours=number), deadline=NOW, state="complete", keep_reasons=(why,) if why else ()
        )
        await records.put(bus, subjects.SNAPSHOT_ORDER, ("n1", *ENV, volume, f"s-{number}"), order)
    report = SnapshotReport(state="complete", size_bytes=3 << 20, location="somewhere", at=NOW)
    await records.put(bus, subjects.SNAPSHOT_REPORT, ("n1", *VOLUME, "s-0"), report)
    listed = (await steer("snapshots", NAME)).out.splitlines()
    assert [row.split()[:3] for row in listed[1:]] == [["wal", "s-1", "complete"], ["data", "s-0", "complete"]]
    assert "3.0 MiB" in listed[2] and "one of the last 7" in listed[2]
    (only,) = (await steer("snapshots", NAME, "data", "-o", "json")).json
    assert only["report"]["location"] == "somewhere"


async def test_history_shows_each_phase_of_a_deployment_and_how_long_it_took(steer: Steer, bus: Bus) -> None:
    steps = (
        Transition(phase="pending", at=NOW),
        Transition(phase="starting", at=NOW + timedelta(seconds=2)),
        Transition(phase="failed", at=NOW + timedelta(seconds=5), reason="not healthy"),
    )
    deployment = Deployment(
        phase="failed", version="2", previous="1", requested_at_sequence=7, phase_since=NOW, error="not healthy",
        transitions=steps,
    )  # fmt: skip
    await records.put(bus, subjects.DEPLOYMENT, (*ENV, ID), deployment)
    (row,) = (await steer("history", NAME)).out.splitlines()[1:]
    assert row.split()[:4] == [ID, "deploy", "2", "failed"] and "5.0 s" in row
    phases = (await steer("history", NAME, ID)).out.splitlines()
    assert phases[0] == "deploy release 2, before it release 1: failed"
    assert [line.split()[1] for line in phases[2:]] == ["pending", "starting", "failed"]
    assert "2.0 s" in phases[2] and "3.0 s" in phases[3] and phases[4].endswith("not healthy")
    assert (await steer("history", NAME, ID, "-o", "json")).json["transitions"][2]["reason"] == "not healthy"
    assert (await steer("history", NAME, ID.replace("a", "b", 1))).code == Exit.FAILED


async def test_events_are_the_notices_that_stand(steer: Steer, bus: Bus) -> None:
    assert "nothing to tell" in (await steer("events")).err
    await records.put(bus, subjects.NODE_STATUS, ("n1",), NodeStatus(state="down", since=NOW))
    for kind, key in (("node_down", ("n1",)), ("deploy_failed", (*ENV, ID)), ("no_capacity", ENV)):
        await records.put(bus, subjects.NOTICE, ("scheduler", kind, *key), notice(f"about {kind}"))
    await records.put(bus, subjects.NOTICE, ("scheduler", "no_capacity", *ENV), None)
    assert [row.split()[3] for row in (await steer("events")).out.splitlines()] == ["node_down", "deploy_failed"]
    assert [row.split()[3] for row in (await steer("events", NAME)).out.splitlines()] == ["deploy_failed"]
    assert (await steer("events", "n1", "-o", "json")).json["record"]["message"] == "about node_down"


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", ["history", "snapshots", "events"])
async def test_an_environment_without_history_is_another_answer_than_none(
    steer: Steer, bus: Bus, command: str, output: str
) -> None:
    await records.put(bus, subjects.ACTIVE, ENV, ActiveRelease(version="1"))  # it outlives an environment
    missing = await steer(command, NAME, "-o", output)
    assert (missing.code, missing.out) == (Exit.FAILED, "")
    assert missing.err == f"steer: there is no environment {NAME}\n"
    await environment(bus)
    empty = await steer(command, NAME, "-o", output)
    assert (empty.code, empty.out.strip()) == (Exit.OK, "[]" if output == "json" and command != "events" else "")


async def test_what_is_part_of_an_environment_or_of_a_name_is_looked_for(steer: Steer, bus: Bus) -> None:
    await environment(bus)
    await records.put(bus, subjects.VOLUME_STATUS, VOLUME, VolumeStatus(node="n1"))
    assert (await steer("snapshots", NAME, "data")).code == Exit.OK
    assert (await steer("snapshots", NAME, "wal")).err == f"steer: there is no volume wal in environment {NAME}\n"
    assert [(await steer("events", name)).code for name in ("shop", "shop/web", f"{NAME}/data")] == [Exit.OK] * 3
    assert [(await steer("events", name)).code for name in ("n1", "shop/catalog", f"{NAME}/wal")] == [Exit.FAILED] * 3
    assert (await steer("events", "shop/*")).code == Exit.INVALID


async def test_events_are_followed_as_they_come_and_go(bus: Bus, settings: Settings) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "events", "n1", "--follow", "-o", "json"),
        cwd=ROOT,
        env=os.environ | {"STEER_NATS_URL": settings.nats_url},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        key = ("scheduler", "node_down", "n1")
        await records.put(bus, subjects.NOTICE, ("scheduler", "node_down", "n2"), notice("another"))
        await records.put(bus, subjects.NOTICE, key, notice("down"))
        first = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        await records.put(bus, subjects.NOTICE, key, None)
        second = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert (first["record"]["message"], second["record"]) == ("down", None)
    finally:
        process.terminate()
        await process.wait()


def notice(message: str) -> Notice:
    return Notice(severity="error", message=message, at=NOW)


def old_file(path: Path, hours: float) -> None:
    path.write_text("source")
    at = time.time() - hours * 3600
    os.utime(path, (at, at))


async def test_sweep_sources_deletes_what_is_older_than_a_day_and_nothing_below(steer: Steer, tmp_path: Path) -> None:
    store = tmp_path / "sources"
    (store / "below").mkdir(parents=True)
    for name, hours in {"old": 25, "new": 23, "below/old": 99}.items():
        old_file(store / name, hours)
    (store / "link").symlink_to(store / "below" / "old")
    told = await steer("sweep", "sources", str(store), "--dry-run")
    assert told.out == f"{store}/old: would be deleted (6 bytes)\n" and (store / "old").exists()
    done = await steer("sweep", "sources", str(store), "-o", "json")
    assert done.json == {"deleted": True, "files": [{"file": f"{store}/old", "size_bytes": 6}]}
    assert sorted(path.name for path in store.iterdir()) == ["below", "link", "new"]
    assert "nothing is older than 24 h" in (await steer("sweep", "sources", str(store))).err
    await steer("sweep", "sources", str(store), "--older-than-hours", "1")
    assert not (store / "new").exists() and (store / "below" / "old").exists()
    assert (await steer("sweep", "sources", str(store / "none"))).code == Exit.INVALID


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    old_file(tmp_path / "old", 25)
    reading, writing = os.pipe()
    os.close(reading)
    command = (sys.executable, "-m", "services.cli", "sweep", "sources", str(tmp_path), "--dry-run")
    result = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)
    assert (result.returncode, result.stderr) == (Exit.OK, b"")


async def test_an_archive_that_is_uploaded_again_is_as_good_as_new(steer: Steer, tmp_path: Path) -> None:
    digest = sources.keep(b"source", tmp_path / "sources")
    old_file(tmp_path / "sources" / digest, 25)
    assert sources.keep(b"source", tmp_path / "sources") == digest
    assert "nothing is older" in (await steer("sweep", "sources", str(tmp_path / "sources"))).err
