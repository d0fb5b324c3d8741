"""A real server and real processes of the services, for the figures that go through the log."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from shared import subjects
from shared.model.live import NodeSample
from shared.model.service import Term
from shared.runtime import records, streams
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.settings import Settings

PATIENCE_SECONDS = 300
POLL_SECONDS = 0.02
HEARTBEATS_PER_SECOND = 500
BEAT_SECONDS = 0.02
ROOT = Path(__file__).parents[1]


class Process:
    """A Python module as a process; what it logs is kept in a file."""

    def __init__(self, module: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._log = folder / f"{module}-{len(list(folder.iterdir()))}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
            )
        self.pid = self._process.pid

    def check(self) -> None:
        """Raise where it has ended by itself."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the process ended: {self._log.read_text(errors='replace')[-2000:]}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(30)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        self._process.send_signal(number)


@dataclass
class Stage:
    """A server with its streams, a connection, and a folder that goes away."""

    server: EmbeddedServer
    bus: Bus
    folder: Path
    processes: list[Process] = field(default_factory=list)
    _heartbeats: asyncio.Task[None] | None = None

    def start(self, module: str) -> Process:
        process = Process(module, self.folder, {"STEER_NATS_URL": self.server.url, "STEER_LOG_LEVEL": "warning"})
        self.processes.append(process)
        return process

    async def scheduler(self) -> Process:
        """Start one, and wait until it leads."""
        process = self.start("services.scheduler")
        await self.led_by(process)
        return process

    async def led_by(self, process: Process) -> None:
        """Wait until the newest term is that of the process."""

        async def leads() -> bool:
            process.check()
            term = await records.get(self.bus, subjects.TERM, ("scheduler",))
            return term is not None and isinstance(term.record, Term) and f"-{process.pid}-" in term.record.holder

        await self.until(leads, "the scheduler does not lead")

    async def until(self, condition: Callable[[], Awaitable[object]], what: str) -> None:
        """Ask until it is true. Raises `TimeoutError`."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not await condition():
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{what} after {PATIENCE_SECONDS} s")
            await asyncio.sleep(POLL_SECONDS)

    async def last_sequence(self) -> int:
        """The end of the log."""
        info = await self.bus.js.stream_info(subjects.STREAM)
        return int(info.state.last_seq)

    async def quiet(self, seconds: float = 1.0) -> int:
        """Wait until nothing has been written for so long; the end of the log."""
        last = -1
        while last != (now := await self.last_sequence()):
            last = now
            await asyncio.sleep(seconds)
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
    """A fresh server and an empty log."""
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
