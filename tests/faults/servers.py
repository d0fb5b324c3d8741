"""The servers that the log lies on: one, or a cluster of three. Each can be killed, paused, stopped and started again."""

import asyncio
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import orjson

from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer, free_port
from shared.runtime.jetstream import api
from shared.runtime.streams import DECLARATIONS
from shared.subjects import STREAM
from tests.faults.disk import Disk
from tests.faults.waiting import until
from tests.integration.running import stop_process

MAX_FILE_STORE_MB = 320
"""Little, so that it can be filled; the stream of build logs reserves 256."""

CONFIG = f"""
jetstream: {{ max_file_store: {MAX_FILE_STORE_MB}MB, store_dir: "%s" }}
# Whoever does not read is cut off early, so that it can be seen.
write_deadline: "2s"
max_pending: 8MB
"""


class Servers:
    """`names` are those that there are. With one server `replicas` is 1, with three 3."""

    def __init__(self, folder: Path, count: int) -> None:
        self.replicas = count
        self.names = [f"s{number}" for number in range(1, count + 1)]
        self._folder = folder
        self._monitoring = {name: free_port() for name in self.names}
        self._cluster = {name: free_port() for name in self.names}
        self._servers = {name: self._server(name) for name in self.names}
        self.disks = {name: Disk(folder / name / "jetstream") for name in self.names}
        self._ports = {name: free_port() for name in self.names}

    def _server(self, name: str) -> EmbeddedServer:
        config = self._folder / f"{name}.conf"
        config.write_text(CONFIG % (self._folder / name))
        arguments: tuple[str, ...] = ("--server_name", name, "-m", str(self._monitoring[name]))
        if len(self.names) > 1:
            routes = ",".join(f"nats://127.0.0.1:{port}" for port in self._cluster.values())
            own = f"nats://127.0.0.1:{self._cluster[name]}"
            arguments += ("--cluster_name", "steersman", "--cluster", own, "--routes", routes)
        return EmbeddedServer(config=config, arguments=arguments)

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self._ports.values())

    def start(self, *names: str) -> None:
        """These, or all of them; blocking and quick."""
        for name in names or self.names:
            self.disks[name].mount()
            self._servers[name].start(self._folder / name, self._ports[name])

    def kill(self, name: str) -> None:
        self._servers[name].kill()

    async def stop(self, name: str) -> None:
        """As an operator stops a server."""
        await asyncio.to_thread(self._servers[name].stop)

    async def pause(self, name: str) -> None:
        await stop_process(self._pid(name))

    def resume(self, name: str) -> None:
        os.kill(self._pid(name), signal.SIGCONT)

    def close(self) -> None:
        for server in self._servers.values():
            if server.process is not None:
                server.process.send_signal(signal.SIGCONT)
                server.kill()
        for disk in self.disks.values():
            disk.unmount()

    def _pid(self, name: str) -> int:
        process = self._servers[name].process
        assert process is not None, f"{name} does not run"
        return process.pid

    def log(self, name: str) -> str:
        """What a server has said."""
        return (self._folder / name / "nats-server.log").read_text(errors="replace")

    async def leads_the_log(self, bus: Bus) -> str:
        """The server that leads the log's stream."""
        return str((await api(bus, f"STREAM.INFO.{STREAM}")).get("cluster", {}).get("leader", self.names[0]))

    async def leads_the_cluster(self) -> str:
        """The server that makes and places streams."""
        for name in self.names:
            found = await asyncio.to_thread(self._ask, name)
            leader = found.get("meta_cluster", {}).get("leader", "")
            if leader:
                return str(leader)
        return self.names[0]

    def _ask(self, name: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._monitoring[name]}/jsz", timeout=2) as answer:
                return dict(orjson.loads(answer.read()))
        except OSError:
            return {}

    async def whole(self, bus: Bus) -> None:
        """Wait until every stream has its leader, and every copy is current."""

        async def all_current() -> bool:
            return all([_current(await api(bus, f"STREAM.INFO.{each['name']}", within=2)) for each in DECLARATIONS])

        await until(all_current, "every copy of every stream is current")


def _current(info: dict[str, Any]) -> bool:
    cluster = info.get("cluster") or {"leader": "the only one"}
    copies = cluster.get("replicas", [])
    return bool(cluster.get("leader")) and all(each.get("current") and not each.get("offline") for each in copies)
