"""Volumes and their snapshots under a real agent."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared import subjects
from shared.model.run import VolumeMount
from shared.model.snapshot import SnapshotOrder, SnapshotPrune, SnapshotReport
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.settings import Settings
from tests.integration.one_node import NODE, PYTHON, OneNode, until

DATA = (VolumeMount(name="my-data", mount_path="/data"),)
VOLUME = ("shop", "web", "production", "my-data")
WRITE = "import os, pathlib; f = pathlib.Path(os.environ['STEER_VOLUME_MY_DATA'], 'log'); f.open('a').write('{} ')"


class Node(OneNode):
    """A node whose volume a test writes to."""

    @property
    def volume(self) -> Path:
        return self.data.joinpath("volumes", *VOLUME)

    def snapshot(self, id: str) -> Path:
        return self.data.joinpath("snapshots", *VOLUME, f"{id}.snapshot")

    async def write(self, text: str, epoch: int) -> None:
        """Start a replica that appends to the volume and ends."""
        command = (PYTHON, "-c", WRITE.format(text))
        await self.assign(f"a-{epoch}", command=command, volumes=DATA, volume_epoch=epoch)
        await self.becomes(f"a-{epoch}", "failed")

    async def order(self, id: str, **fields: Any) -> int:
        values: dict[str, Any] = {"slot": datetime.now(UTC), "deadline": datetime.now(UTC) + timedelta(minutes=1)}
        order = SnapshotOrder(**(values | fields))
        return await records.put(self.bus, subjects.SNAPSHOT_ORDER, (NODE, *VOLUME, id), order)

    async def prune(self, *ids: str) -> None:
        await records.put(self.bus, subjects.SNAPSHOT_PRUNE, (NODE, *VOLUME), SnapshotPrune(ids=ids))

    async def report(self, id: str) -> SnapshotReport | None:
        version = await records.get(self.bus, subjects.SNAPSHOT_REPORT, (NODE, *VOLUME, id))
        return version.record if version is not None and isinstance(version.record, SnapshotReport) else None

    async def reports(self, id: str) -> list[str]:
        """Every state that was reported; `-` = deleted."""
        messages = await records.history(self.bus, subjects.SNAPSHOT_REPORT.subject(NODE, *VOLUME, id))
        found = [records.version_of(message).record for message in messages]
        return [record.state if isinstance(record, SnapshotReport) else "-" for record in found]

    async def reported(self, id: str, state: str) -> SnapshotReport:
        async def look() -> SnapshotReport | None:
            report = await self.report(id)
            return report if report is not None and report.state == state else None

        report = await until(look, f"snapshot {id} {state}")
        assert report is not None
        return report

    async def forgotten(self, id: str) -> None:
        async def look() -> bool:
            return (await self.reports(id))[-1:] == ["-"]

        await until(look, f"the report of {id} to go")


@pytest.fixture
async def node(bus: Bus, settings: Settings, tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(bus, settings, tmp_path)
    yield node
    await node.clean()


async def test_a_volume_outlives_its_replicas_and_an_epoch_that_is_over_starts_nothing(node: Node) -> None:
    node.start()
    await node.write("one", 10)
    await node.stop()
    node.start()
    await node.write("two", 12)
    await node.write("late", 11)
    late = await node.becomes("a-11", "failed")
    assert "volume 'my-data': epoch 11 is over, a-12 was admitted with 12" in late.message
    assert (node.volume / "log").read_text() == "one two "


async def test_a_volume_that_a_replica_still_uses_is_refused_also_when_that_one_was_adopted(node: Node) -> None:
    node.start()
    await node.assign("a-1", volumes=DATA, volume_epoch=1)
    await node.becomes("a-1", "healthy")
    await node.stop()
    node.start()
    await node.assign("a-2", volumes=DATA, volume_epoch=2)
    assert "a-1 still uses it" in (await node.becomes("a-2", "failed")).message
    await node.assign("a-1", volumes=DATA, volume_epoch=1, desired="stop")
    await node.becomes("a-1", "stopped")
    await node.assign("a-3", volumes=DATA, volume_epoch=3)
    await node.becomes("a-3", "healthy")


async def test_a_snapshot_is_made_reported_and_pruned(node: Node) -> None:
    node.start()
    await node.write("one", 1)
    await node.order("s-1")
    report = await node.reported("s-1", "complete")
    assert report.location == str(node.snapshot("s-1"))
    content = node.snapshot("s-1").read_bytes()
    assert report.size_bytes == len(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = archive.extractfile("./log")
        assert member is not None and member.read() == b"one "
    await node.prune("s-1")
    await node.forgotten("s-1")
    assert not node.snapshot("s-1").exists()


async def test_a_snapshot_that_cannot_be_made_is_failed_with_the_reason(node: Node) -> None:
    node.start(snapshot_command=("sh", "-c", "echo half > {target}; echo the disk is full >&2; exit 3"))
    await node.order("s-1")
    assert "no such volume" in (await node.reported("s-1", "failed")).error
    await node.write("one", 1)
    await node.order("s-2")
    assert (await node.reported("s-2", "failed")).error == "sh ended with 3: the disk is full"
    await node.order("s-3", deadline=datetime.now(UTC) - timedelta(seconds=1))
    assert "deadline had passed" in (await node.reported("s-3", "failed")).error
    assert not list(node.snapshot("s-1").parent.iterdir())


async def test_a_command_that_takes_too_long_is_ended_at_the_deadline_or_when_the_order_is_over(node: Node) -> None:
    node.start(snapshot_command=("sh", "-c", "sleep 600; touch {target}"))
    await node.write("one", 1)
    await node.order("s-1", deadline=datetime.now(UTC) + timedelta(seconds=4))
    assert (await node.reported("s-1", "failed")).error == "not done by its deadline"
    await node.order("s-2")
    await node.reported("s-2", "running")
    await node.order("s-2", state="timed_out")
    assert (await node.reported("s-2", "failed")).error == "given up: the order is timed_out"
    await node.stop()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("snapshot")]


async def test_an_order_that_was_under_way_when_the_agent_ended_is_made_again_and_one_that_is_done_is_not(
    node: Node,
) -> None:
    node.start()
    await node.write("one", 1)
    await node.order("s-1")
    await node.reported("s-1", "complete")
    await node.stop()
    node.start(snapshot_command=("sh", "-c", "sleep 600; touch {target}"))
    await node.order("s-2")
    await node.reported("s-2", "running")
    await node.stop()
    node.start()
    await node.reported("s-2", "complete")
    assert await node.reports("s-1") == ["running", "complete"]
    assert (await node.reports("s-2"))[-1] == "complete"
    assert node.snapshot("s-2").exists()


async def test_prunes_that_came_while_the_agent_was_away_are_carried_out(node: Node) -> None:
    node.start()
    await node.write("one", 1)
    await node.order("s-1")
    await node.order("s-2")
    await asyncio.gather(node.reported("s-1", "complete"), node.reported("s-2", "complete"))
    await node.stop()
    await node.prune("s-1")
    node.start()
    await node.forgotten("s-1")
    assert not node.snapshot("s-1").exists()
    assert node.snapshot("s-2").exists()


async def test_the_report_of_an_order_that_is_gone_goes_and_the_copy_stays(node: Node) -> None:
    node.start()
    await node.write("one", 1)
    await node.order("s-1")
    await node.reported("s-1", "complete")
    await records.put(node.bus, subjects.SNAPSHOT_ORDER, (NODE, *VOLUME, "s-1"), None)
    await node.forgotten("s-1")
    assert node.snapshot("s-1").exists()
