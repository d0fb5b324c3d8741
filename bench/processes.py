"""A real server and real processes of the services, for the figures that go through the log."""

import asyncio
import contextlib
import gc
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from bench.process import Process
from shared import subjects
from shared.errors import Unavailable
from shared.model.live import NodeSample
from shared.model.service import Term
from shared.runtime import records, streams
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.jetstream import api
from shared.runtime.settings import Settings

PATIENCE_SECONDS = 900
POLL_SECONDS = 0.02
HEARTBEATS_PER_SECOND = 500
BEAT_SECONDS = 0.02


@dataclass
class Stage:
    """A server with its streams, a connection, and a folder that goes away."""

    server: EmbeddedServer
    bus: Bus
    folder: Path
    processes: list[Process] = field(default_factory=list)
    _heartbeats: asyncio.Task[None] | None = None

    def start(self, module: str, *arguments: str) -> Process:
        environment = {"STEER_NATS_URL": self.server.url, "STEER_LOG_LEVEL": "warning"}
        process = Process(module, self.folder, environment, arguments)
        self.processes.append(process)
        return process

    async def scheduler(self) -> Process:
        """Start one, and wait until it leads."""
        return await self.service("scheduler")

    async def service(self, name: str) -> Process:
        """Start one of these, and wait until it leads."""
        process = self.start(f"services.{name}")
        await self.led_by(process, name=name)
        return process

    async def services(self, *names: str) -> dict[str, Process]:
        """Start these side by side, and wait until each leads."""
        return dict(zip(names, await asyncio.gather(*map(self.service, names)), strict=True))

    async def led_by(self, *processes: Process, name: str = "scheduler") -> Process:
        """Wait until the newest term of the service is that of one of the processes: this one."""
        found: list[Process] = []

        async def leads() -> bool:
            for process in processes:
                process.check()
            term = await records.get(self.bus, subjects.TERM, (name,))
            holder = term.record.holder if term is not None and isinstance(term.record, Term) else ""
            found[:] = [process for process in processes if f"-{process.pid}-" in holder]
            return bool(found)

        await self.until(leads, f"the {name} does not lead")
        return found[0]

    async def until(self, condition: Callable[[], Awaitable[object]], what: str) -> None:
        """Ask until it is true; no answer is no. Raises `TimeoutError`."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(Unavailable):  # while a consumer on a million subjects is made, say
                if await condition():
                    return
            await asyncio.sleep(POLL_SECONDS)
        raise TimeoutError(f"{what} after {PATIENCE_SECONDS} s")

    async def last_sequence(self) -> int:
        """The end of the log."""
        info = await api(self.bus, f"STREAM.INFO.{subjects.STREAM}", within=PATIENCE_SECONDS)
        return int(info["state"]["last_seq"])

    async def quiet(self, seconds: float = 1.0) -> int:
        """Wait until nothing has been written for so long; the end of the log."""
        last, since = await self.last_sequence(), monotonic()
        while monotonic() < since + seconds:
            await asyncio.sleep(seconds / 20)
            if last != (now := await self.last_sequence()):
                last, since = now, monotonic()
        return last

    def beat(self, nodes: list[str]) -> None:
        """Send every node's heartbeat until the end: 500 a second at most, every 2 s at most."""
        interval_seconds = max(2.0, len(nodes) / HEARTBEATS_PER_SECOND)
        self._heartbeats = asyncio.create_task(_beat(self.bus, nodes, interval_seconds))

    async def close(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
        for process in self.processes:
            process.stop(signal.SIGKILL)
        await self.bus.close()
        self.server.stop()


async def _beat(bus: Bus, nodes: list[str], interval_seconds: float) -> None:
    body = NodeSample(interval_seconds=interval_seconds).model_dump_json().encode()
    begin, sent = monotonic(), 0
    while True:
        due = int((monotonic() - begin) / interval_seconds * len(nodes))
        for number in range(sent, due):
            await bus.nc.publish(subjects.live_node(nodes[number % len(nodes)]), body)
        sent = due
        await asyncio.sleep(BEAT_SECONDS)


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """A fresh server and an empty log. The collector leaves alone what there is: a history of a large cluster would cost
    a tenth of a second whenever it looks."""
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="steer-bench-") as name:
        folder = Path(name)
        server = EmbeddedServer()
        server.start(folder / "jetstream")
        try:
            bus = await connect(Settings(nats_url=server.url), "bench", patience=10)
        except BaseException:
            server.stop()
            raise
        found = Stage(server, bus, folder)
        try:
            await streams.ensure(bus)
            yield found
        finally:
            await found.close()
            gc.unfreeze()
