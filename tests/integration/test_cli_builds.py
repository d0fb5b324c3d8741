"""`steer build` and its kin, against a builder and a worker on a real server."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.builder.config import BuilderConfig
from services.builder.service import service
from services.builder.worker.template import parse
from services.builder.worker.worker import Worker, WorkerConfig
from services.cli.session import quiet
from shared import subjects
from shared.model.build import BuildPool
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from tests.integration.running import Running, Start, eventually
from tests.integration.steer_command import Steer

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "builds" / "oci_layout.py"


@pytest.fixture
def steer(server: EmbeddedServer, tmp_path: Path) -> Steer:
    return Steer(server.url, tmp_path / "data")


@pytest.fixture
async def builder(start: Start, bus: Bus, tmp_path: Path) -> Running:
    quiet()  # a command catches what is written meanwhile
    base = (tmp_path / "data" / "sources").as_uri() + "/"
    running = await start(service(BuilderConfig(source_url_base=base, registry_address="r:5000")))
    await records.put(bus, subjects.BUILD_POOL, ("default",), BuildPool(max_workers=1, lease_ttl_seconds=3))
    await eventually(lambda: running.leading)
    return running


@asynccontextmanager
async def worker(bus: Bus, directory: Path, command: str) -> AsyncIterator[None]:
    config = WorkerConfig("default", "w-0", 0, parse(command), directory / "w-0", heartbeat_seconds=0.5)
    stop = asyncio.Event()
    task = asyncio.create_task(Worker(config, bus).run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


async def test_a_directory_becomes_an_image(builder: Running, steer: Steer, bus: Bus, tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "main.py").write_text("print('hello')\n")
    command = f"{sys.executable} {SCRIPT} --registry {tmp_path / 'registry'}"
    async with worker(bus, tmp_path, command):
        made = await steer("build", "shop/web", "--directory", str(app), "--wait", "--timeout", "30", "-o", "json")
        assert made.code == 0, made.err
        assert made.json["status"]["image"].startswith("r:5000/shop/web@sha256:")
        again = await steer("build", "shop/web", "--directory", str(app), "--wait", "--timeout", "30")
        assert again.code == 0 and "step 1: main.py" in again.err and "r:5000/shop/web@sha256:" in again.out
        log = await steer("logs", "build", made.json["build"], "-f")
        assert log.out.splitlines()[0] == "--- attempt 1 on w-0" and log.out.splitlines()[-1] == "--- succeeded"
        told = await steer("logs", "build", made.json["build"], "-f", "-o", "json")
        lines = [json.loads(text) for text in told.out.splitlines()]
        assert [each["line"] for each in lines] == log.out.splitlines()
        assert {(each["build"], each["attempt"], each["worker"]) for each in lines} == {(made.json["build"], 1, "w-0")}
        listed = await steer("builds", "shop")
        assert listed.out.count("succeeded") == 2
        workers = await steer("workers")
        assert "pool default: 1 workers" in workers.out and "Operational" in workers.out


async def test_a_build_that_waits_says_for_what_and_can_be_taken_back(builder: Running, steer: Steer) -> None:
    made = await steer("build", "shop/web", "--source", "sha256:1", "--owner", "team-a", "-o", "json")
    name = made.json["build"]
    await eventually(lambda: len(builder.instance.world.state.indexes.line("default")) == 1)
    listed = await steer("builds", "shop/web")
    assert "queued" in listed.out and "place 1, waits for a new worker: 0 of at most 1 are leased" in listed.out
    assert (await steer("cancel", name)).out == f"build {name}: canceled\n"
    assert (await steer("cancel", name)).out == f"build {name}: unchanged\n"
    await eventually(lambda: len(builder.instance.world.state.indexes.line("default")) == 0)
    shown = await steer("builds", name, "-o", "json")
    assert shown.json[0]["state"] == "canceled"
    empty = await steer("logs", "build", name)
    assert empty.code == 0 and "has no log" in empty.err


@pytest.mark.parametrize("follow", [(), ("-f",)])
async def test_a_build_that_was_never_asked_for_has_no_log_to_wait_for(
    steer: Steer, bus: Bus, follow: tuple[str, ...]
) -> None:
    name = "shop/web/01arz3ndektsv4rrffq69g5fav"
    result = await steer("logs", "build", name, *follow)
    assert (result.code, result.out, result.err) == (1, "", f"steer: build {name}: there is none\n")


async def test_a_build_that_fails_is_an_exit_code(builder: Running, steer: Steer, bus: Bus, tmp_path: Path) -> None:
    async with worker(bus, tmp_path, f"{sys.executable} -c raise(SystemExit(3))"):
        made = await steer("build", "shop/web", "--source", "d", "--wait", "--timeout", "30")
    assert made.code == 1 and "exited with code 3" in made.err


async def test_a_build_that_is_waited_for_in_vain_says_what_it_waits_for(builder: Running, steer: Steer) -> None:
    made = await steer("build", "shop/web", "--source", "d", "--pool", "other", "--wait", "--timeout", "0.5")
    assert made.code == 4
    assert "has not ended in 0.5 s: it is queued, place 1, waits for pool other, which does not exist" in made.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("build", "shop/web"), "a --source that is in place, or a --directory to pack"),
        (("build", "shop", "--source", "d"), "shop: an app is <project>/<app>"),
        (("build", "shop/web", "--source", "../d"), "source_digest"),
        (("build", "shop/web", "--source", "d", "--owner", "a b"), "owner"),
        (("build", "shop/web", "--source", "d", "--build-arg", "A"), "--build-arg 'A': not NAME=VALUE"),
        (("build", "shop/web", "--directory", "no-such-directory"), "not a directory"),
        (("cancel", "shop/web/nothing"), "which is not a ULID"),
        (("workers", "Big"), "DNS-1123"),
    ],
)
async def test_a_mistake_is_told_and_nothing_is_published(
    steer: Steer, bus: Bus, arguments: tuple[str, ...], reason: str
) -> None:
    result = await steer(*arguments)
    assert result.code == 2 and reason in result.err
    assert await records.load(bus, [subjects.BUILD.subject_filter]) == []


async def test_without_a_builder_the_workers_cannot_be_listed(steer: Steer, bus: Bus) -> None:
    result = await steer("workers")
    assert result.code == 3 and "is the service running" in result.err
