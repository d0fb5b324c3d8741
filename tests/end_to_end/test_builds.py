"""Builds, whole: two builders, a scaler and its workers as processes, and a real OCI layout for each build."""

import asyncio
import hashlib
import io
import json
import os
import signal
import sys
import tarfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from services.cli.sources import keep, pack
from services.cli.world import World, following
from shared import subjects
from shared.codec import validate
from shared.model.assignment import Instance
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import WorkerScale
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment
from shared.model.live import LogLine
from shared.model.release import DeployRequest, Release
from shared.model.service import Term
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.runtime.settings import Settings
from shared.subjects import Key
from tests.end_to_end.whole_log import nothing_differs

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "builds" / "oci_layout.py"
FILES = 8
KINDS = (
    subjects.BUILD_STATUS,
    subjects.BUILD_WORKER,
    subjects.WORKER_SCALE,
    subjects.DEPLOYMENT,
    subjects.INSTANCE,
)


@asynccontextmanager
async def process(
    module: str, log: Path, *arguments: str, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("ab") as output:
        made = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, cwd=ROOT, stdout=output, stderr=output, env=os.environ | variables
        )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.send_signal(signal.SIGTERM)
            await asyncio.wait_for(made.wait(), 60)


def source(directory: Path, number: int) -> str:
    """An archive of a few files; its digest."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for index in range(FILES):
            content = f"file {index} of source {number}\n".encode()
            member = tarfile.TarInfo(f"app/file-{index}.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    digest = f"sha256:{hashlib.sha256(data.getvalue()).hexdigest()}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / digest).write_bytes(data.getvalue())
    return digest


def statuses(world: World) -> dict[Key, BuildStatus]:
    return dict(world.records(subjects.BUILD_STATUS, BuildStatus))


async def logs(bus: Bus, key: Key) -> list[LogLine]:
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


def leader_pid(holder: str) -> int:
    return int(holder.rsplit("-", 2)[1])


async def test_ten_builds_of_three_owners_whatever_dies_meanwhile(bus: Bus, settings: Settings, tmp_path: Path) -> None:
    registry, done = tmp_path / "registry", tmp_path / "done"
    environment = {
        "STEER_NATS_URL": settings.nats_url,
        "STEER_SOURCE_URL_BASE": (tmp_path / "sources").as_uri() + "/",
        "STEER_REGISTRY_ADDRESS": "registry.example:5000",
    }
    pool = BuildPool(max_workers=3, max_idle_seconds=2, lease_ttl_seconds=4, owner_limit=2)
    await records.put(bus, subjects.BUILD_POOL, ("default",), pool)
    command = f"{sys.executable} {SCRIPT} --registry {registry} --done {done} --seconds 0.15"
    options = ("--data", str(tmp_path / "workers"), "--", "--command", command, "--heartbeat-seconds", "0.5")
    async with (
        process("services.builder", tmp_path / "builder-0.log", **environment),
        process("services.builder", tmp_path / "builder-1.log", **environment),
        process("services.builder.scaler", tmp_path / "scaler.log", *options, **environment) as scaler,
        following(bus, [kind.subject_filter for kind in KINDS]) as world,
    ):
        keys: list[Key] = []
        for number in range(1, 11):
            keys.append(("shop", "web" if number % 2 else "api", f"{number:026d}"))
            digest = source(tmp_path / "sources", number)
            request = BuildRequest(owner=f"team-{number % 3}", source_digest=digest, cache_key=keys[-1][1])
            await records.put(bus, subjects.BUILD, keys[-1], request)

        def three_build() -> dict[Key, BuildStatus] | None:
            running = {key: each for key, each in statuses(world).items() if each.state == "running"}
            return running if len(running) == 3 else None

        running = await world.until(three_build, 60, lambda: f"no three builds run: {statuses(world)}")
        victim = sorted({each.worker for each in running.values()})[0]
        children = psutil.Process(scaler.pid).children()
        next(child for child in children if victim in child.cmdline()).send_signal(signal.SIGKILL)
        term = await records.get(bus, subjects.TERM, ("builder",))
        assert term is not None and isinstance(term.record, Term)
        os.kill(leader_pid(term.record.holder), signal.SIGKILL)

        def all_done() -> dict[Key, BuildStatus] | None:
            found = statuses(world)
            return found if len(found) == 10 and all(status.terminal for status in found.values()) else None

        found = await world.until(all_done, 120, lambda: f"not all builds have ended: {statuses(world)}")
        assert {status.state for status in found.values()} == {"succeeded"}, [status.error for status in found.values()]
        assert max(status.attempt for status in found.values()) == 2, "the killed worker's build was begun again"
        finished = Counter(line.split()[0] for line in done.read_text().splitlines())
        assert finished == {"/".join(key): 1 for key in keys}, "each exactly once"
        for key in keys:
            check_image(registry, found[key])
            check_log(await logs(bus, key), found[key])

        def back_to_none() -> bool | None:
            scale = world.record(subjects.WORKER_SCALE, ("default",), WorkerScale)
            return True if scale is not None and scale.replicas == 0 and not world.all(subjects.BUILD_WORKER) else None

        await world.until(back_to_none, 60, lambda: f"there are workers: {world.all(subjects.BUILD_WORKER)}")
    await nothing_differs(bus, Settings.from_environment(environment))


def check_image(registry: Path, status: BuildStatus) -> None:
    """The image that the status names is there, whole, and named by its digest."""
    repository, _, digest = status.image.partition("@")
    layouts = [path.parent for path in (registry / repository.replace(":", "/")).rglob("index.json")]
    blobs = {f"sha256:{blob.name}": blob.read_bytes() for path in layouts for blob in (path / "blobs/sha256").iterdir()}
    assert all(name == f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in blobs.items())
    manifest = json.loads(blobs[digest])
    with tarfile.open(fileobj=io.BytesIO(blobs[manifest["layers"][0]["digest"]])) as layer:
        assert len(layer.getnames()) == FILES


def check_log(lines: list[LogLine], status: BuildStatus) -> None:
    """Every attempt is marked, and the last one is complete, in order, each line once."""
    assert [line.line for line in lines if line.line.startswith("--- attempt")][-1] == (
        f"--- attempt {status.attempt} on {status.worker}"
    )
    last = [line.line for line in lines if line.attempt == status.attempt]
    assert [text for text in last if text.startswith("step")] == [
        f"step {number}: app/file-{number - 1}.txt" for number in range(1, FILES + 1)
    ]
    assert last[-1] == "--- succeeded" and lines[-1].end


UNPACK = (
    'to="$1/${STEER_BUILD_PUSH_REFERENCE#exec:}"; mkdir -p "$to"; tar -xf "${STEER_BUILD_SOURCE_URL#file://}" -C "$to"'
)
ENVIRONMENT: Key = ("shop", "web", "production")


async def test_a_release_waits_for_its_build_and_then_runs_its_image(
    bus: Bus, settings: Settings, tmp_path: Path
) -> None:
    """The image is a directory that the agent's exec driver runs: `exec:built/shop/web:<build>`."""
    images, store = tmp_path / "images", tmp_path / "sources"
    images.mkdir()
    environment = {
        "STEER_NATS_URL": settings.nats_url,
        "STEER_SOURCE_URL_BASE": store.as_uri() + "/",
        "STEER_REGISTRY_ADDRESS": "exec:built",
        "STEER_LOCAL_LOAD": "true",
    }
    build: Key = ("shop", "web", f"{1:026d}")
    agent = ("--node", "n1", "--exec-root", str(images), "--data", str(tmp_path / "agent"), "--stop-replicas-on-exit")
    scaler = ("--data", str(tmp_path / "workers"), "--", "--command", f"sh -c '{UNPACK}' build {images}")
    await records.put(bus, subjects.BUILD_POOL, ("default",), BuildPool(max_workers=1, lease_ttl_seconds=4))
    await records.put(bus, subjects.ENVIRONMENT, ENVIRONMENT, web())
    release = Release(build=build[2], service=web().service)
    await records.put(bus, subjects.RELEASE, (*ENVIRONMENT, "1"), release)
    await records.put(bus, subjects.DEPLOY, (*ENVIRONMENT, build[2]), DeployRequest(version="1"))
    async with (
        process("services.scheduler", tmp_path / "scheduler.log", **environment),
        process("services.routes", tmp_path / "routes.log", **environment),
        process("services.builder", tmp_path / "builder.log", **environment),
        process("services.builder.scaler", tmp_path / "scaler.log", *scaler, **environment),
        process("services.agent", tmp_path / "agent.log", *agent, **environment),
        following(bus, [kind.subject_filter for kind in KINDS]) as world,
    ):

        def phase() -> str:
            found = world.record(subjects.DEPLOYMENT, (*ENVIRONMENT, build[2]), Deployment)
            return found.phase if found is not None else "none"

        await world.until(lambda: phase() == "building" or None, 60, phase)
        digest = keep(pack(ROOT / "examples" / "shop" / "v1"), store)
        await records.put(bus, subjects.BUILD, build, BuildRequest(owner="a", source_digest=digest))

        def healthy() -> int | None:
            found = [each for _, each in world.records(subjects.INSTANCE, Instance) if each.state == "healthy"]
            return found[0].ports["http"] if found else None

        port = await world.until(healthy, 90, phase)
        assert b"First edition" in await get(port)
        await world.until(lambda: phase() == "succeeded" or None, 60, phase)
        active = await records.get(bus, subjects.ACTIVE, ENVIRONMENT)
        assert active is not None and isinstance(active.record, ActiveRelease)
        assert active.record.image == f"exec:built/shop/web:{build[2]}"
    await nothing_differs(bus, Settings.from_environment(environment), deciders=3)


def web() -> Environment:
    service = {
        "run": {
            "command": [sys.executable, "web.py"],
            "ports": [{"name": "http", "container_port": 8080}],
            "healthcheck": {"path": "/healthz", "interval_seconds": 1},
        },
        "resources": {"cpu_millis": 100, "memory_mb": 64},
    }
    return Environment.model_validate_json(json.dumps({"replicas": {"min": 1}, "service": service}))


async def get(port: int) -> bytes:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    writer.write(b"GET / HTTP/1.0\r\nHost: shop\r\n\r\n")
    try:
        return await reader.read()
    finally:
        writer.close()
