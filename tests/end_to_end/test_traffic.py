"""Requests through the real Caddy and the real HAProxy while everything behind them changes: none fails.

Every request counts, and none is sent a second time.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
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
from tests.end_to_end.edge import Edge, Load, answers, edge, process, program, until
from tests.end_to_end.running import SHOP, steer

WEB: Key = ("shop", "web", "production")
NAP: Key = ("shop", "nap", "production")
HOST = "shop.example.com"
NAP_HOST = "nap.example.com"
NODES = ("n1", "n2", "n3")
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
    """A plane with three nodes and a proxy before it."""

    plane: Plane
    bus: Bus
    edge: Edge
    agents: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

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
async def site(proxy: str, directory: Path) -> AsyncIterator[Site]:
    plane = Plane(directory / "plane", [], lambda text: None, ("scheduler", "routes"))
    logs = directory / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(plane.stop)
        await plane.start(0)
        bus = await connect(plane.settings, "test")
        stack.push_async_callback(bus.close)
        agents = {}
        for number, name in enumerate(NODES):
            command = ("--node", name, "--exec-root", str(SHOP), "--data", str(directory / name))
            ports = ("--port-range", f"{31_000 + 500 * number}-{31_499 + 500 * number}", "--stop-replicas-on-exit")
            capacity = ("--capacity-cpu-millis", "1000", "--capacity-memory-mb", "1024")
            agents[name] = await stack.enter_async_context(
                process(
                    logs / f"{name}.log",
                    *(sys.executable, "-m", "services.agent", *command, *ports, *capacity),
                    url=plane.url,
                )
            )
        found = Site(plane, bus, await stack.enter_async_context(edge(proxy, plane.url, logs)), agents)
        await plane.ready(bus)
        await records.put(bus, subjects.ENVIRONMENT, WEB, environment({"min": 6}))
        idle = environment({"min": 1}, idle_timeout_seconds=3, service={"scale_to_zero": True})
        await records.put(bus, subjects.ENVIRONMENT, NAP, idle)
        for name, host, target in (("web", HOST, "web/production"), ("nap", NAP_HOST, "nap/production")):
            await records.put(bus, subjects.DOMAIN, ("shop", name), Domain(hostname=host, environment=target))
        await asyncio.gather(found.deploy(WEB, "v1"), found.deploy(NAP, "v1"))
        await until(lambda: answers(found.edge.port, HOST, 200))
        yield found


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "proxy",
    [
        pytest.param(name, marks=pytest.mark.skipif(program(name) is None, reason=f"{name} is not installed"))
        for name in ("haproxy", "caddy")
    ],
)
async def test_no_request_fails_while_everything_behind_the_proxy_changes(proxy: str, tmp_path: Path) -> None:
    async with site(proxy, tmp_path) as here:
        load = Load(here.edge.port, HOST, "/")
        load.start()
        await load.more(PHASE)

        await here.deploy(WEB, "v2")
        await until(lambda: here.settled(WEB, 6, "2"), 40)
        await load.more(PHASE)
        assert load.failed == [], f"a switch of releases\n{here.edge.logs()}"
        assert load.answered("First edition") and load.answered("now with prices")

        drained = (await here.replicas(WEB))[0][0][0]
        await records.put(here.bus, subjects.NODE_CONTROL, (drained,), NodeControl(drain=True))
        await until(lambda: left(here, drained), 40)
        await until(lambda: here.settled(WEB, 6, "2"), 40)
        await load.more(PHASE)
        assert load.failed == [], f"a drain\n{here.edge.logs()}"

        await records.put(here.bus, subjects.ENVIRONMENT, WEB, environment({"min": 4}))
        await until(lambda: here.settled(WEB, 4, "2"), 40)
        await load.more(PHASE)
        assert load.failed == [], f"a scale-down\n{here.edge.logs()}"

        under_way = load.open
        await here.kill_node(next(key[0] for key, _ in await here.replicas(WEB)))
        under_way = max(under_way, load.open)
        await load.more(PHASE)
        await load.stop()
        assert len(load.failed) <= under_way, f"{len(load.failed)} failed: {load.failed[:5]}\n{here.edge.logs()}"

        await until(lambda: asleep(here), 40)
        await until(lambda: here.settled(NAP, 0, "1"), 40)
        # The node that died may still be taken for alive, so that the first replica is placed there in vain.
        assert await answers(here.edge.port, NAP_HOST, 200, seconds=60), f"it does not wake\n{here.edge.logs()}"


async def left(here: Site, node: str) -> bool:
    return all(key[0] != node for key, _ in await here.replicas(WEB))


async def asleep(here: Site) -> bool:
    version = await records.get(here.bus, subjects.SCALE, NAP)
    return version is not None and isinstance(version.record, Scale) and version.record.effective_replicas == 0
