"""Requests through the real Caddy and the real HAProxy while everything behind them changes: none fails.

Every request counts, and none is sent a second time.
"""

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import psutil
import pytest

from services.cli.plane import Plane
from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import Scale
from shared.model.domain import Domain
from shared.model.environment import Environment
from shared.model.node import NodeControl
from shared.runtime import records
from shared.runtime.bus import Bus, connect
from shared.service import Version
from shared.subjects import Key
from tests.end_to_end.edge import Edge, Load, activator, answers, edge, process, program, until
from tests.end_to_end.running import steer

WEB: Key = ("shop", "web", "production")
NAP: Key = ("shop", "nap", "production")
HOST = "shop.example.com"
NAP_HOST = "nap.example.com"
NODES = ("n1", "n2", "n3")
REPLICA = Path(__file__).with_name("replica")
PROXIES = ("haproxy", "caddy")
INSTALLED = tuple(name for name in PROXIES if program(name) is not None)
PHASE = 400
"""Requests of a phase at least: two seconds."""


def environment(replicas: dict[str, int], **fields: Any) -> Environment:
    service = {
        "resources": {"cpu_millis": 50, "memory_mb": 32},
        "run": {
            "command": ["python3", "web.py"],
            "ports": [{"name": "http", "container_port": 8080}],
            "healthcheck": {
                "path": "/healthz",
                "interval_seconds": 0.5,
                "timeout_seconds": 5,
                "grace_period_seconds": 30,
            },
            "stop_grace_seconds": 5,
        },
        **fields.pop("service", {}),
    }
    return Environment.model_validate(
        {"replicas": replicas, "drain_window_seconds": 1, "service": service, **fields}, strict=False
    )


@dataclass
class Site:
    """A plane with three nodes, and the proxies before it."""

    plane: Plane
    bus: Bus
    edges: Sequence[Edge]
    agents: Mapping[str, asyncio.subprocess.Process]

    def logs(self) -> str:
        return "\n".join(edge.logs() for edge in self.edges)

    async def deploy(self, key: Key, image: str) -> None:
        code, _, err = await steer(
            "deploy", "/".join(key), "--image", f"exec:{image}", "--wait", "--timeout", "50", data=self.plane.directory
        )
        assert code == 0, err

    async def of(self, kind: subjects.Kind) -> list[Version]:
        return await records.load(self.bus, [kind.subject_filter])

    async def replicas(self, key: Key) -> list[tuple[Key, Assignment]]:
        found = await self.of(subjects.ASSIGNMENT)
        return [
            (version.key, version.record)
            for version in found
            if isinstance(version.record, Assignment) and version.record.workload.key == "/".join(key)
        ]

    async def settled(self, key: Key, count: int, release: str) -> bool:
        """So many replicas, all of this release, all meant to run and healthy: whatever there was before is gone."""
        replicas = await self.replicas(key)
        healthy = {
            version.key
            for version in await self.of(subjects.INSTANCE)
            if isinstance(version.record, Instance) and version.record.state == "healthy"
        }
        return len(replicas) == count and all(
            record.desired == "run" and record.release == release and name in healthy for name, record in replicas
        )

    async def kill_node(self, name: str) -> None:
        """As if its plug were pulled: the agent and every replica of it, at once."""
        agent = psutil.Process(self.agents[name].pid)
        doomed = [agent, *agent.children(recursive=True)]
        for each in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        await self.agents[name].wait()


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    plane = Plane(directory / "plane", [], lambda text: None, ("scheduler", "routes"))
    logs = directory / "logs"
    for name in INSTALLED:
        (logs / name).mkdir(parents=True)
    for release in ("v1", "v2"):
        shutil.copytree(REPLICA, directory / "apps" / release)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(plane.stop)
        await plane.start(0)
        bus = await connect(plane.settings, "test")
        stack.push_async_callback(bus.close)
        nodes = [
            stack.enter_async_context(node(name, number, plane.url, directory)) for number, name in enumerate(NODES)
        ]
        agents = dict(zip(NODES, await asyncio.gather(*nodes), strict=True))
        wakes = await stack.enter_async_context(activator(plane.url, logs))
        before = [stack.enter_async_context(edge(name, plane.url, logs / name, wakes)) for name in INSTALLED]
        found = Site(plane, bus, await asyncio.gather(*before), agents)
        await plane.ready(bus)
        await records.put(bus, subjects.ENVIRONMENT, WEB, environment({"min": 4}))
        idle = environment({"min": 1}, idle_timeout_seconds=3, service={"scale_to_zero": True})
        await records.put(bus, subjects.ENVIRONMENT, NAP, idle)
        for name, host, target in (("web", HOST, "web/production"), ("nap", NAP_HOST, "nap/production")):
            await records.put(bus, subjects.DOMAIN, ("shop", name), Domain(hostname=host, environment=target))
        await asyncio.gather(found.deploy(WEB, "v1"), found.deploy(NAP, "v1"))
        for each in found.edges:
            await until(partial(each.serves, HOST, NAP_HOST))
        yield found


@asynccontextmanager
async def node(name: str, number: int, url: str, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = ("--node", name, "--exec-root", str(directory / "apps"), "--data", str(directory / name))
    ports = ("--port-range", f"{31_000 + 500 * number}-{31_499 + 500 * number}", "--stop-replicas-on-exit")
    capacity = ("--capacity-cpu-millis", "1000", "--capacity-memory-mb", "1024")
    agent = (sys.executable, "-m", "services.agent", *command, *ports, *capacity)
    async with process(directory / "logs" / f"{name}.log", *agent, url=url) as child:
        yield child


@pytest.mark.skipif(not INSTALLED, reason="no proxy is installed")
async def test_no_request_fails_while_everything_behind_the_proxies_changes(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        loads = Loads(here.edges)
        await loads.more()

        await here.deploy(WEB, "v2")
        await until(lambda: here.settled(WEB, 4, "2"), 60)
        await loads.more()
        loads.assert_none_failed("a switch of releases")
        assert all(load.answered("v1") and load.answered("v2") for load in loads.all)

        drained = (await here.replicas(WEB))[0][0][0]
        await records.put(here.bus, subjects.NODE_CONTROL, (drained,), NodeControl(drain=True))
        await until(lambda: left(here, drained), 60)
        await until(lambda: here.settled(WEB, 4, "2"), 60)
        await loads.more()
        loads.assert_none_failed("a drain")

        await records.put(here.bus, subjects.ENVIRONMENT, WEB, environment({"min": 3}))
        await until(lambda: here.settled(WEB, 3, "2"), 60)
        await loads.more()
        loads.assert_none_failed("a scale-down")

        under_way = loads.under_way()
        await here.kill_node(next(key[0] for key, _ in await here.replicas(WEB)))
        under_way = [max(pair) for pair in zip(under_way, loads.under_way(), strict=True)]
        await loads.more()
        await loads.stop()
        loads.assert_none_failed("the end of a node, but for what was under way there", under_way)

        await until(lambda: asleep(here), 60)
        await until(lambda: here.settled(NAP, 0, "1"), 60)
        # The node that died may still be taken for alive, so that the first replica is placed there in vain.
        woken = await asyncio.gather(*(answers(edge.port, NAP_HOST, 200, seconds=60) for edge in here.edges))
        assert all(woken), f"it does not wake\n{here.logs()}"
    if missing := sorted({*PROXIES} - {*INSTALLED}):
        pytest.skip(f"the others have passed, but not installed: {', '.join(missing)}")


class Loads:
    """The same load on each proxy."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.edges = edges
        self.all = [Load(edge.port, HOST, "/") for edge in edges]
        for load in self.all:
            load.start()

    async def more(self) -> None:
        """Until each has sent the requests of a phase."""
        await asyncio.gather(*(load.more(PHASE) for load in self.all))

    async def stop(self) -> None:
        await asyncio.gather(*(load.stop() for load in self.all))

    def under_way(self) -> list[int]:
        return [load.open for load in self.all]

    def assert_none_failed(self, phase: str, but: Sequence[int] = ()) -> None:
        for each, load, some in zip_longest(self.edges, self.all, but, fillvalue=0):
            assert isinstance(each, Edge) and isinstance(load, Load)
            failed = f"{len(load.failed)} of {load.sent} failed: {load.failed[:5]}"
            assert len(load.failed) <= some, f"{phase}, {each.proxy}: {failed}\n{each.logs()}"


async def left(here: Site, node: str) -> bool:
    return all(key[0] != node for key, _ in await here.replicas(WEB))


async def asleep(here: Site) -> bool:
    version = await records.get(here.bus, subjects.SCALE, NAP)
    return version is not None and isinstance(version.record, Scale) and version.record.effective_replicas == 0
