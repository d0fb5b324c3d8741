"""One process of the product while it is measured: its memory, its CPU time, and what it says about itself."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
MEGABYTE = 1_000_000


class Process:
    """A Python module as a process; what it logs is kept in a file."""

    def __init__(
        self, module: str, folder: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> None:
        self.module = module
        self._port = _free_port()
        self._log = folder / f"{module}-{len(list(folder.iterdir()))}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env={**os.environ, **environment, "STEER_METRICS_PORT": str(self._port)},
                stdout=output,
                stderr=output,
            )
        self.pid = self._process.pid
        self._inside = psutil.Process(self.pid)

    def check(self) -> None:
        """Raise where it has ended by itself."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.module} has ended: {self._log.read_text(errors='replace')[-2000:]}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(30)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        self._process.send_signal(number)

    def resident_mb(self) -> float:
        """Its resident memory."""
        return float(self._inside.memory_info().rss) / MEGABYTE

    def cpu_seconds(self) -> float:
        """What it has used so far, user and system."""
        times = self._inside.cpu_times()
        return float(times.user + times.system)

    async def ready(self) -> bool:
        """Whether it has loaded the log. Raises where it has ended."""
        self.check()
        try:
            head, _ = await self._ask("readyz")
        except OSError:
            return False  # it does not listen yet
        return b" 200 " in head.split(b"\r\n", 1)[0]

    async def metrics(self) -> Mapping[str, float]:
        """What it tells Prometheus, by name; labels are left out."""
        _, body = await self._ask("metrics")
        lines = (line for line in body.decode().splitlines() if line and not line.startswith("#"))
        pairs = (line.rsplit(" ", 1) for line in lines)
        return {name.partition("{")[0]: float(value) for name, value in pairs}

    async def _ask(self, path: str) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(f"GET /{path} HTTP/1.1\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        return head, body


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
