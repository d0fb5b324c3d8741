"""The embedded server: where it gathers what is not committed yet, and that this costs nothing that is."""

import asyncio
import resource
import shutil
from pathlib import Path

import pytest

from bench.raw import BatchWriter, raw
from shared import subjects
from shared.runtime import tasks
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import MEMORY, MEMORY_BYTES, EmbeddedServer, _stage_in
from shared.runtime.settings import Settings
from tests.integration.running import eventually

LOG = Path("jetstream/$G/streams") / subjects.STREAM
BATCHES = LOG / "batches"

roomy = pytest.mark.skipif(
    not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MEMORY_BYTES, reason=f"{MEMORY} has no room"
)


async def commit(bus: Bus, count: int = 3) -> int:
    return await BatchWriter(bus).write([raw(f"steer.node.n{number}", b"{}") for number in range(count)])


@roomy
async def test_batches_are_gathered_in_memory_and_what_is_committed_survives_a_crash(
    bus: Bus, server: EmbeddedServer, settings: Settings, tmp_path: Path
) -> None:
    store = tmp_path / "jetstream"
    staging = (store / BATCHES).readlink()
    assert staging.parent == MEMORY
    assert await commit(bus) == 3
    half = {"Nats-Batch-Id": "half", "Nats-Batch-Sequence": "1"}
    await bus.publish("steer.node.n9", b"{}", half)
    await bus.nc.flush()
    await eventually(lambda: list(staging.iterdir()))  # what is not whole lies there
    server.kill()
    server.start(store, server.port)
    assert not staging.exists()
    assert (store / BATCHES).readlink().parent == MEMORY
    again = await connect(settings, "again", patience=60)
    info = await again.js.stream_info(subjects.STREAM)
    assert info.state.messages == 3
    await again.close()


@roomy
async def test_a_batch_that_a_crash_cuts_in_half_is_whole_when_the_server_is_back(
    bus: Bus, server: EmbeddedServer, settings: Settings, tmp_path: Path
) -> None:
    """Its files may not grow beyond a certain size, which the log reaches after some records of the batch."""
    store = tmp_path / "jetstream"
    first, second = 1000, 100
    assert await commit(bus, first) == first
    block = store / LOG / "msgs" / "1.blk"
    limit = block.stat().st_size * (first + second // 2) // first
    assert server.process is not None
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    half = asyncio.create_task(commit(bus, second))
    log = store / "nats-server.log"
    await eventually(lambda: "file too large" in log.read_text() or "SIGXFSZ" in log.read_text())
    server.kill()
    await tasks.end(half)
    server.start(store, server.port)
    again = await connect(settings, "again", patience=60)
    info = await again.js.stream_info(subjects.STREAM)
    assert info.state.messages == first + second
    await again.close()


@roomy
def test_what_a_server_has_left_in_memory_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    first, second = EmbeddedServer(), EmbeddedServer()
    first.start(tmp_path)
    left = (tmp_path / BATCHES).readlink()
    assert first.process is not None
    first.process.kill()
    first.process.wait()
    (left / "half").mkdir()
    with second:
        second.start(tmp_path)
        assert not left.exists() and (tmp_path / BATCHES).readlink() != left


@roomy
def test_who_starts_on_a_copy_of_a_store_leaves_the_original_alone(tmp_path: Path) -> None:
    original, copy, outside = tmp_path / "original", tmp_path / "copy", tmp_path / "outside"
    outside.mkdir()
    with EmbeddedServer() as first, EmbeddedServer() as second:
        first.start(original)
        staging = (original / BATCHES).readlink()
        shutil.copytree(original, copy, symlinks=True)
        second.start(copy)
        assert staging.is_dir() and (original / BATCHES).readlink() == staging != (copy / BATCHES).readlink()
        second.stop()
        (copy / BATCHES).unlink()
        (copy / BATCHES).symlink_to(outside)
        second.start(copy)
    assert outside.is_dir()


def test_a_batch_that_came_first_stays_where_it_is(tmp_path: Path) -> None:
    memory, batches = tmp_path / "memory", tmp_path / "batches"
    memory.mkdir()
    batches.mkdir()
    assert _stage_in(memory, batches) is None and not list(memory.iterdir())
    assert _stage_in(tmp_path / "none", tmp_path / "else") is None
