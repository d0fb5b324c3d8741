"""Three servers: the log has three copies, and loses its leader under load."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shared.runtime import bus as buses
from shared.runtime import streams
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer, free_port
from shared.runtime.instance import Instance
from shared.runtime.jetstream import api
from shared.runtime.settings import Settings
from shared.subjects import STREAM
from tests.integration import toy
from tests.integration.running import ask, counts, eventually

KEY = ("shop", "web", "production")
NAMES = ("a", "b", "c")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, EmbeddedServer]]:
    ports = {name: free_port() for name in NAMES}
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports.values())
    servers = {}
    for name in NAMES:
        arguments = (
            *("--server_name", name, "--cluster_name", "steersman"),
            *("--cluster", f"nats://127.0.0.1:{ports[name]}", "--routes", routes),
        )
        servers[name] = EmbeddedServer(arguments=arguments)
        servers[name].start(tmp_path / name)
    yield servers
    for server in servers.values():
        server.stop()


@pytest.fixture
async def bus(cluster: dict[str, EmbeddedServer]) -> AsyncIterator[Bus]:
    settings = Settings(nats_url=",".join(server.url for server in cluster.values()), replicas=3)
    bus = await buses.connect(settings, "test", patience=60)

    async def ensured() -> bool:
        try:
            await streams.ensure(bus)
        except Exception:  # the cluster elects its leader
            return False
        return True

    await eventually(ensured)
    yield bus
    await bus.close()


async def test_trap_7_the_death_of_the_logs_leader_changes_no_leader_and_loses_nothing(
    cluster: dict[str, EmbeddedServer], bus: Bus
) -> None:
    assert bus.settings.lease_ttl_seconds == 12  # longer than the 4 to 8 s that the log takes to elect a leader
    own = await buses.connect(bus.settings, "toy", patience=60)
    stop = asyncio.Event()
    one = Instance(toy.service(), own, stop)
    task = asyncio.create_task(one.run())
    await ask(bus, KEY, 150)
    await eventually(lambda: one.world.state.counted.get(KEY, 0) > 20)
    leader = (await api(bus, f"STREAM.INFO.{STREAM}"))["cluster"]["leader"]
    cluster[leader].kill()
    await eventually(lambda: one.world.state.counted.get(KEY) == 150, seconds=90)
    assert await counts(bus, KEY) == list(range(1, 151))
    stop.set()
    await asyncio.wait_for(task, 60)
    await own.close()
