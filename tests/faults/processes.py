"""The services as processes, two of each: the one whose term is the newest leads."""

import asyncio
import os
import signal
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from services.cli.security import SERVICES
from shared import subjects
from shared.model.service import Term
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.embedded import free_port
from tests.faults.waiting import until
from tests.integration.running import stop_process

ROOT = Path(__file__).parents[2]
NAMES = tuple(service.name for service in SERVICES)


@dataclass
class Instance:
    """One process of a service, and where its log goes."""

    service: str
    log: Path
    process: asyncio.subprocess.Process
    metrics_port: int

    @property
    def runs(self) -> bool:
        return self.process.returncode is None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    async def leads(self) -> bool:
        """Whether it says of itself that it decides."""
        metrics = await asyncio.to_thread(self._metrics)
        return f'steer_leader{{service="{self.service}"}} 1.0\n'.encode() in metrics

    def _metrics(self) -> bytes:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=1) as answer:
                return bytes(answer.read())
        except OSError:
            return b""

    async def pause(self) -> None:
        await stop_process(self.process.pid)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


class Services:
    """`start` all of them, find a `leader`, `restore` what has ended."""

    def __init__(self, folder: Path, url: str, replicas: int) -> None:
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("STEER_")}
        self._environment |= {"STEER_NATS_URL": url, "STEER_REPLICAS": str(replicas)}
        self.instances: list[Instance] = []

    async def start(self, bus: Bus) -> None:
        for name in NAMES:
            await self.add(name)
            await self.add(name)
        for name in NAMES:
            await self.leader(bus, name)

    async def add(self, service: str, *, environment: dict[str, str] | None = None) -> Instance:
        port = free_port()
        log = self._folder / f"{service}-{len(self.instances)}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"services.{service}"),
                cwd=ROOT,
                env=self._environment | {"STEER_METRICS_PORT": str(port)} | (environment or {}),
                stdout=output,
                stderr=output,
            )
        self.instances.append(Instance(service, log, process, port))
        return self.instances[-1]

    async def leader(self, bus: Bus, service: str) -> Instance:
        """The running instance that has opened the newest term, and decides; waits for one."""

        async def found() -> Instance | None:
            term = await term_of(bus, service)
            here = (each for each in self.instances if each.runs and each.service == service)
            newest = next((each for each in here if term and f"-{each.process.pid}-" in term.holder), None)
            return newest if newest is not None and await newest.leads() else None

        instance = await until(found, f"{service} is led")
        assert isinstance(instance, Instance)
        return instance

    async def restore(self) -> int:
        """Start anew what has ended, so that there are two of each again; how many that were."""
        missing = [name for name in NAMES for _ in range(2 - sum(i.runs and i.service == name for i in self.instances))]
        for name in missing:
            await self.add(name)
        return len(missing)

    def said(self, text: str) -> list[str]:
        """The services of which some instance has said this."""
        return sorted({each.service for each in self.instances if text in each.said()})

    async def close(self) -> None:
        for each in self.instances:
            if each.runs:
                each.resume()
                await each.kill()


async def term_of(bus: Bus, service: str) -> Term | None:
    version = await records.get(bus, subjects.TERM, (service,))
    return version.record if version is not None and isinstance(version.record, Term) else None
