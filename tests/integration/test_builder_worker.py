"""The builder, the reference worker and the scaler on a real server, in this process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.builder.config import BuilderConfig
from services.builder.scaler import Scaler, steps
from services.builder.service import service
from services.builder.worker.template import parse
from services.builder.worker.worker import Worker, WorkerConfig
from shared import subjects
from shared.codec import validate
from shared.errors import ConfigurationError
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import BuildOrder, BuildReport, BuildWorker, WorkerScale
from shared.model.live import LogLine
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.subjects import Key
from tests.integration.buildkitd import POOL, ready_worker
from tests.integration.running import Running, Start, eventually

ECHO = f"{sys.executable} -c \"import os; print(1); print(os.environ['STEER_BUILD_SOURCE_URL'])\""


@pytest.fixture
async def builder(start: Start, bus: Bus) -> Running:
    running = await start(service(BuilderConfig(source_url_base="file:///sources/", registry_address="r:5000")))
    await records.put(bus, subjects.BUILD_POOL, (POOL,), BuildPool(max_workers=3, lease_ttl_seconds=10))
    await eventually(lambda: running.leading)
    return running


@asynccontextmanager
async def worker(bus: Bus, directory: Path, ordinal: int = 0, command: str = ECHO) -> AsyncIterator[Worker]:
    name = f"w-{ordinal}"
    config = WorkerConfig(POOL, name, ordinal, parse(command), directory / name, heartbeat_seconds=0.3)
    stop = asyncio.Event()
    made = Worker(config, bus)
    task = asyncio.create_task(made.run(stop))
    try:
        yield made
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


async def build(bus: Bus, number: int, **fields: object) -> Key:
    key = ("shop", "web", f"{number:026d}")
    request = BuildRequest.model_validate({"owner": "a", "source_digest": "d", **fields})
    await records.put(bus, subjects.BUILD, key, request)
    return key


async def status(bus: Bus, key: Key) -> BuildStatus:
    version = await records.get(bus, subjects.BUILD_STATUS, key)
    assert version is not None and isinstance(version.record, BuildStatus)
    return version.record


async def ended(bus: Bus, key: Key) -> BuildStatus:
    async def terminal() -> BuildStatus | None:
        version = await records.get(bus, subjects.BUILD_STATUS, key)
        record = version.record if version is not None else None
        return record if isinstance(record, BuildStatus) and record.terminal else None

    found = await eventually(terminal)
    assert isinstance(found, BuildStatus)
    return found


async def log_of(bus: Bus, key: Key) -> list[LogLine]:
    follower = Follower(bus, [subjects.build_log(*key)], stream=subjects.LOG_STREAM, start=1)
    await follower.start()
    lines: list[LogLine] = []
    try:
        while not follower.caught_up:
            batch = await follower.next(10)
            assert not isinstance(batch, Restarted)
            lines += [validate(LogLine, message.subject, message.body) for message in batch]
    finally:
        await follower.stop()
    return lines


async def test_a_build_runs_its_command_and_its_output_is_in_the_log(
    builder: Running, bus: Bus, tmp_path: Path
) -> None:
    key = await build(bus, 1)
    metadata = "os.environ['STEER_BUILD_METADATA_FILE']"
    script = (
        f"import json,os; print('hello'); json.dump({{'containerimage.digest': 'sha256:77'}}, open({metadata}, 'w'))"
    )
    async with worker(bus, tmp_path, command=f'{sys.executable} -c "{script}"'):
        done = await ended(bus, key)
        assert (done.state, done.image) == ("succeeded", "r:5000/shop/web@sha256:77")
        texts = [line.line for line in await log_of(bus, key)]
        assert texts == ["--- attempt 1 on w-0", "hello", "--- succeeded"]

        async def report_is_gone() -> bool:
            version = await records.get(bus, subjects.BUILD_REPORT, (POOL, "w-0", key[2]))
            return version is not None and version.record is None

        await eventually(report_is_gone)
    gone = await records.get(bus, subjects.BUILD_WORKER, (POOL, "w-0"))
    assert gone is not None and gone.record is None


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (f"{sys.executable} -c raise(SystemExit(3))", "exited with code 3"),
        ("no-such-program-anywhere", "cannot run 'no-such-program-anywhere'"),
        (f"{sys.executable} -c pass", "without the digest of an image"),
        ("sh -c 'kill -9 $$'", "was ended by SIGKILL"),
        ("sh -c 'echo nonsense > $STEER_BUILD_METADATA_FILE'", "its metadata file cannot be read"),
        ("sh -c 'echo [] > $STEER_BUILD_METADATA_FILE'", "its metadata file cannot be read"),
    ],
)
async def test_a_command_that_fails_says_why(
    builder: Running, bus: Bus, tmp_path: Path, command: str, error: str
) -> None:
    key = await build(bus, 1)
    async with worker(bus, tmp_path, command=command):
        done = await ended(bus, key)
    assert done.state == "failed" and error in done.error


async def test_a_cancel_ends_the_command(builder: Running, bus: Bus, tmp_path: Path) -> None:
    started = tmp_path / "started"
    key = await build(bus, 1)
    async with worker(bus, tmp_path, command=f"sh -c 'touch {started}; sleep 1000 & wait'"):
        await eventually(started.exists)
        request = await records.get(bus, subjects.BUILD, key)
        assert request is not None and isinstance(request.record, BuildRequest)
        await records.put(bus, subjects.BUILD, key, request.record.model_copy(update={"canceled": True}))
        assert (await ended(bus, key)).state == "canceled"


async def test_a_worker_that_is_told_to_end_finishes_what_it_builds(builder: Running, bus: Bus, tmp_path: Path) -> None:
    started, go_on = tmp_path / "started", tmp_path / "go-on"
    first, second = await build(bus, 1), await build(bus, 2)
    script = f"touch {started}; until [ -e {go_on} ]; do sleep 0.01; done"
    config = WorkerConfig(POOL, "w-0", 0, parse(f"sh -c '{script}'"), tmp_path / "w-0", heartbeat_seconds=0.3)
    stop = asyncio.Event()
    task = asyncio.create_task(Worker(config, bus).run(stop))
    await eventually(started.exists)
    stop.set()

    async def deleting() -> bool:
        version = await records.get(bus, subjects.BUILD_WORKER, (POOL, "w-0"))
        return version is not None and isinstance(version.record, BuildWorker) and version.record.deleting

    await eventually(deleting)
    go_on.touch()
    await asyncio.wait_for(task, 60)
    assert (await ended(bus, first)).attempt == 1
    assert (await status(bus, second)).state == "queued"


async def test_an_order_for_an_earlier_life_of_the_worker_is_not_run(bus: Bus, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    old = BuildOrder.model_validate(
        {
            "build": f"shop/web/{1:026d}", "attempt": 1, "token": "t", "worker_created_at": "2020-01-01T00:00:00Z",
            "source_url": "", "push_reference": "",
        }
    )  # fmt: skip
    await records.put(bus, subjects.BUILD_ORDER, (POOL, "w-0"), old)
    report = BuildReport(build=old.build, attempt=1, token="earlier", state="running")
    await records.put(bus, subjects.BUILD_REPORT, (POOL, "w-0", f"{1:026d}"), report)
    async with worker(bus, tmp_path, command=f"touch {ran}"):

        async def forgotten() -> bool:
            version = await records.get(bus, subjects.BUILD_REPORT, (POOL, "w-0", f"{1:026d}"))
            return version is not None and version.record is None

        await eventually(forgotten)
    assert not ran.exists()


async def test_a_restart_of_the_builder_is_not_noticed(
    builder: Running, start: Start, bus: Bus, tmp_path: Path
) -> None:
    started, go_on = tmp_path / "started", tmp_path / "go-on"
    key = await build(bus, 1)
    script = f"touch {started}; until [ -e {go_on} ]; do sleep 0.01; done"
    async with worker(bus, tmp_path, command=f"sh -c '{script}'"):
        await eventually(started.exists)
        await builder.stop()
        second = await start(service(BuilderConfig(registry_address="r:5000", local_load=True)))
        await eventually(lambda: second.leading)
        go_on.touch()
        done = await ended(bus, key)
    assert (done.state, done.attempt) == ("succeeded", 1)


# -- the scaler ---------------------------------------------------------------------------------------------------------


class FakeWorkers:
    """Runs nothing, and remembers what it was told."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.told: list[str] = []

    def name(self, ordinal: int) -> str:
        return f"w-{ordinal}"

    def ordinals(self) -> set[int]:
        return set(self.running)

    async def start(self, ordinal: int) -> None:
        self.running.add(ordinal)
        self.told.append(f"start {ordinal}")

    async def stop(self, ordinal: int) -> None:
        self.running.discard(ordinal)
        self.told.append(f"stop {ordinal}")


async def test_the_scaler_follows_the_scale_and_forgets_workers_that_died(bus: Bus) -> None:
    await records.put(bus, subjects.WORKER_SCALE, (POOL,), WorkerScale(replicas=2))
    workers, stop = FakeWorkers(), asyncio.Event()
    task = asyncio.create_task(Scaler(bus, POOL, workers).run(stop))
    await eventually(lambda: workers.running == {0, 1})
    await ready_worker(bus, 1)
    await records.put(bus, subjects.WORKER_SCALE, (POOL,), WorkerScale(replicas=2, replace=("w-0",)))
    await eventually(lambda: workers.told[-2:] == ["stop 0", "start 0"])
    await records.put(bus, subjects.WORKER_SCALE, (POOL,), WorkerScale(replicas=1))
    await eventually(lambda: workers.running == {0})

    async def forgotten() -> bool:
        version = await records.get(bus, subjects.BUILD_WORKER, (POOL, "w-1"))
        return version is not None and version.record is None

    await eventually(forgotten)
    stop.set()
    await asyncio.wait_for(task, 60)
    assert workers.running == set()


def test_the_highest_workers_go_first() -> None:
    assert steps(WorkerScale(replicas=1), {0, 1, 2}, set()).stop == (2, 1)
    assert steps(WorkerScale(replicas=3), {1}, {1}).start == (0, 2)
    assert steps(WorkerScale(replicas=3), {1}, {1}).stop == (1,)


@pytest.mark.parametrize("text", ["", "a 'b", "build {nonsense}"])
def test_a_command_template_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--command"):
        parse(text)
