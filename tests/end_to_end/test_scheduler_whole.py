"""The scheduler among real processes: idle to zero and back, a drain under load, a stateful service, snapshots."""

import asyncio
import json
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.cli.exits import Exit
from services.cli.plane import AgentSpec, Plane
from services.cli.traffic import Traffic
from shared import subjects
from shared.model.activation import Activation
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import ActiveRelease
from shared.model.domain import Domain
from shared.model.environment import Environment, Replicas, ServiceSpec
from shared.model.release import DeployRequest, Release
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec, VolumeMount
from shared.model.volume import SnapshotPolicy, Volume
from shared.runtime import records, tasks
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import free_port
from shared.runtime.follow import RouteVersion, follow_routes, match
from shared.runtime.follower import Follower, Message, Restarted
from shared.subjects import Key
from tests.end_to_end.running import steer
from tests.end_to_end.test_shop import get
from tests.end_to_end.whole_log import nothing_differs
from tests.integration.running import eventually

ENV: Key = ("shop", "web", "production")
NAME = "/".join(ENV)
HOST = "shop.example.com"
WAIT_SECONDS = 60

SERVE = """
import http.server, os, signal, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def do_GET(self):
        body = os.environ["STEER_NODE"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64
with Server(("127.0.0.1", int(os.environ["PORT"])), Handler) as server:
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.05)
"""

KEEP = """
import fcntl, os, pathlib, signal, sys, time
volume = pathlib.Path(os.environ["STEER_VOLUME_DATA"])
lock = (volume / "lock").open("a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (volume / "two-at-once").touch()
with (volume / "log").open("a") as log:
    log.write(pathlib.Path.cwd().name + "\\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    time.sleep(60)
"""


class Whole:
    """A plane with two nodes, and a connection of the test's own."""

    def __init__(self, plane: Plane, bus: Bus) -> None:
        self.plane, self.bus = plane, bus

    async def steer(self, *arguments: str) -> Any:
        """What a command says with `-o json`."""
        code, out, err = await steer(*arguments, "-o", "json", data=self.plane.directory)
        assert code == Exit.OK, err
        return json.loads(out)

    async def environment(self, **fields: Any) -> None:
        replicas = fields.pop("replicas", Replicas(min=1))
        environment = Environment(replicas=replicas, drain_window_seconds=0, **fields)
        await records.put(self.bus, subjects.ENVIRONMENT, ENV, environment)

    async def deploy(self, version: int, image: str, service: ServiceSpec) -> None:
        """A release and its request; returns when it serves."""
        await records.put(
            self.bus, subjects.RELEASE, (*ENV, str(version)), Release(image=f"exec:{image}", service=service)
        )
        request = DeployRequest(version=str(version))
        await records.put(self.bus, subjects.DEPLOY, (*ENV, f"{version:026}"), request)

        async def serves() -> bool:
            active = await self.record(subjects.ACTIVE, ENV)
            return isinstance(active, ActiveRelease) and active.version == str(version)

        await eventually(serves, WAIT_SECONDS)

    async def record(self, kind: subjects.Kind, key: Key) -> Any:
        version = await records.get(self.bus, kind, key)
        return version.record if version is not None else None

    async def assignments(self) -> dict[Key, Assignment]:
        versions = await records.load(self.bus, [subjects.ASSIGNMENT.subject_filter])
        return {version.key: version.record for version in versions if isinstance(version.record, Assignment)}


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    apps = tmp_path / "apps"
    for name, text in {"serve": SERVE, "first": KEEP, "second": KEEP}.items():
        (apps / name).mkdir(parents=True)
        (apps / name / "main.py").write_text(text)
    nodes = [
        AgentSpec(f"n{number}", apps, capacity=(4000, 4096), port_range=(20_000 + 500 * number, 20_499 + 500 * number))
        for number in (1, 2)
    ]
    plane = Plane(tmp_path / "plane", nodes, lambda text: None, ("scheduler", "routes"))
    try:
        await plane.start(free_port())
        bus = await connect(plane.settings, "test", patience=WAIT_SECONDS)
        await plane.ready(bus)
        yield Whole(plane, bus)
        await nothing_differs(bus, plane.settings, deciders=2)
        await bus.close()
    finally:
        await plane.stop()


def service(**fields: Any) -> ServiceSpec:
    run = fields.pop("run", None) or RunSpec(
        command=(sys.executable, "main.py"),
        ports=(PortSpec(name="http", container_port=8080),),
        healthcheck=Healthcheck(interval_seconds=0.2, timeout_seconds=2, path="/"),
    )
    return ServiceSpec(resources=Resources(cpu_millis=100, memory_mb=64), run=run, **fields)


class Edge:
    """A stand-in for a proxy: it serves every version of the routes at once, and nobody calls."""

    def __init__(self, bus: Bus) -> None:
        self.version: RouteVersion | None = None
        self._task = asyncio.create_task(self._follow(bus))

    async def _follow(self, bus: Bus) -> None:
        async with aclosing(follow_routes(bus, name="edge", demand=dict)) as versions:
            async for version in versions:
                self.version = version

    async def stop(self) -> None:
        await tasks.end(self._task)

    def port(self) -> int | None:
        """Where the environment answers now."""
        route = match(self.version, HOST, "/") if self.version is not None else None
        return int(route.endpoints[0].address.rpartition(":")[2]) if route is not None and route.endpoints else None


async def test_what_nobody_calls_goes_to_zero_and_an_activation_wakes_it(whole: Whole) -> None:
    edge = Edge(whole.bus)
    try:
        spec = service(scale_to_zero=True, max_concurrency=10)
        await whole.environment(idle_timeout_seconds=2, service=spec)
        await records.put(
            whole.bus, subjects.DOMAIN, ("shop", "front"), Domain(hostname=HOST, environment="web/production")
        )
        await whole.deploy(1, "serve", spec)
        await eventually(lambda: edge.port() is not None, WAIT_SECONDS)

        async def cold() -> bool:
            return not await whole.assignments() and edge.port() is None

        await eventually(cold, WAIT_SECONDS)
        scale = await whole.record(subjects.SCALE, ENV)
        assert (scale.effective_replicas, scale.reason) == (0, "no request for 2 s")

        activation = Activation(requested_at=datetime.now(UTC), parked=1)
        await records.put(whole.bus, subjects.ACTIVATION, ("edge", *ENV), activation)
        port = await eventually(edge.port, WAIT_SECONDS)
        assert (await get(port, "/"))[0] == 200
        (found,) = (await whole.assignments()).values()
        assert found.desired == "run"
    finally:
        await edge.stop()


async def test_a_drain_under_load_fails_no_request_and_leaves_the_node_empty(whole: Whole) -> None:
    spec = service()
    await whole.environment(replicas=Replicas(min=4), service=spec)
    await records.put(
        whole.bus, subjects.DOMAIN, ("shop", "front"), Domain(hostname=HOST, environment="web/production")
    )
    await whole.deploy(1, "serve", spec)
    traffic = Traffic(whole.bus, HOST, ("/", "/a", "/b"), read=str)
    await traffic.start()
    try:
        await eventually(lambda: traffic.endpoints("/") == 4, WAIT_SECONDS)
        told = await whole.steer("drain", "n1", "--dry-run")
        assert [row["to"] for row in told["moves"]] == ["n2", "n2"] and not told["stuck"]
        traffic.send()
        await eventually(lambda: traffic.tally.sent > 50, WAIT_SECONDS)
        drained = await whole.steer("drain", "n1", "--wait", "--timeout", str(WAIT_SECONDS))
        assert drained["record"]["drain"] is True
        before = traffic.tally.sent
        await eventually(lambda: traffic.tally.sent > before + 50, WAIT_SECONDS)
        assert {node for node, _ in await whole.assignments()} == {"n2"}
        assert (traffic.tally.failed, traffic.tally.retried) == ([], 0)
        assert {node for _, node in traffic.tally.answers} == {"n1", "n2"}
    finally:
        await traffic.stop()


async def running_at_once(bus: Bus) -> int:
    """The most replicas that may have been running at one time, at any prefix of the log."""
    filters = [subjects.ASSIGNMENT.subject_filter, subjects.INSTANCE.subject_filter]
    follower = Follower(bus, filters, start=1)
    await follower.start()
    messages: list[Message] = []
    while not follower.caught_up:
        batch = await follower.next(1)
        assert not isinstance(batch, Restarted)
        messages += batch
    await follower.stop()
    alive: set[Key] = set()
    most = 0
    for message in messages:
        version = records.version_of(message)
        match version.record:
            case Assignment(desired="run"):
                alive.add(version.key)
            case Instance(state="stopped" | "failed"):
                alive.discard(version.key)
            case _:
                pass
        most = max(most, len(alive))
    return most


async def test_a_stateful_service_is_updated_one_at_a_time_with_its_data_and_snapshots_are_made_and_pruned(
    whole: Whole,
) -> None:
    mount = VolumeMount(name="data", mount_path="/data")
    run = RunSpec(command=(sys.executable, "main.py"), volumes=(mount,), stop_grace_seconds=3)
    spec = service(run=run, stateful=True)
    await whole.environment(service=spec)
    await whole.deploy(1, "first", spec)
    await whole.deploy(2, "second", spec)
    pin = (await whole.record(subjects.VOLUME_STATUS, (*ENV, "data"))).node
    volume = whole.plane.directory.joinpath("agents", pin, "volumes", *ENV, "data")
    await eventually(lambda: (volume / "log").read_text().split() == ["first", "second"], WAIT_SECONDS)
    assert not (volume / "two-at-once").exists()
    assert await running_at_once(whole.bus) == 1
    newest = (await whole.steer("history", NAME))[0]
    assert "stopping_old" in [step["phase"] for step in newest["transitions"]]

    await records.put(whole.bus, subjects.VOLUME, (*ENV, "data"), Volume(snapshot_policy=SnapshotPolicy(keep_last=1)))
    first = await snapshot(whole)
    with tarfile.open(first) as archive:
        log = archive.extractfile("./log")
        assert log is not None and log.read().decode().split() == ["first", "second"]
    second = await snapshot(whole)
    assert first != second

    async def pruned() -> bool:
        left = await whole.steer("snapshots", NAME, "data")
        return [row["report"]["location"] for row in left if row["report"]] == [str(second)] and not first.exists()

    await eventually(pruned, WAIT_SECONDS)
    assert second.exists()


async def snapshot(whole: Whole) -> Path:
    """Ask for one; the file, when it is complete."""
    request = (await whole.steer("snapshot", NAME, "data"))["record"]["snapshot_request"]

    async def complete() -> Path | None:
        rows = await whole.steer("snapshots", NAME, "data")
        found = [row for row in rows if row["id"] == f"r-{request}" and row["order"]["state"] == "complete"]
        # Order and report are read one after the other: the report may be the one before.
        return Path(location) if found and (location := found[0]["report"]["location"]) else None

    path: Path = await eventually(complete, WAIT_SECONDS)
    return path
