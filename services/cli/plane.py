"""A whole control plane on one machine: the embedded server, one instance of each service, agents and build workers.

`start` brings it up in order, `stop` takes it down: first the services, so that nothing is replaced any more, then the
agents with their replicas, then the server. The directory holds everything, and belongs to one plane at a time.
"""

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from services.cli.exits import Failed, TimedOut
from services.cli.leaders import DECIDERS, leaders
from services.cli.session import URL_FILE
from services.cli.sources import url_base
from services.cli.supervisor import Program, Supervisor, tail
from services.cli.world import following
from shared import subjects
from shared.model.node import NodeStatus
from shared.runtime import streams
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.settings import Settings

DEFAULT_PORT = 4222
PORTS_TO_TRY = 100
READY_SECONDS = 30.0
WATCH_SECONDS = 0.5
SERVER_LOG = "nats-server.log"


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent. A capacity of None is detected."""

    node: str
    exec_root: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: tuple[int, int] | None = None
    port_range: tuple[int, int] | None = None

    def program(self, directory: Path, environment: Mapping[str, str]) -> Program:
        arguments = ["--node", self.node, "--exec-root", str(self.exec_root), "--data", str(directory / self.node)]
        for name, value in self.labels.items():
            arguments += ["--label", f"{name}={value}"]
        if self.capacity:
            cpu_millis, memory_mb = self.capacity
            arguments += ["--capacity-cpu-millis", str(cpu_millis), "--capacity-memory-mb", str(memory_mb)]
        if self.port_range:
            arguments += ["--port-range", f"{self.port_range[0]}-{self.port_range[1]}"]
        return Program(f"agent-{self.node}", "services.agent", (*arguments, "--stop-replicas-on-exit"), environment)


class Plane:
    """See the module. `say` gets what people should know: what was started again, and why."""

    def __init__(
        self,
        directory: Path,
        agents: Sequence[AgentSpec],
        say: Callable[[str], None],
        services: Sequence[str] = DECIDERS,
        build_command: str = "",
    ) -> None:
        self.directory = directory.resolve()
        self._agents = agents
        self._say = say
        self._services = services
        self._build_command = build_command
        self._server = EmbeddedServer()
        self._supervisor = Supervisor(self.directory / "logs", say)
        self._watch: asyncio.Task[None] | None = None
        self._lock: IO[str] | None = None
        self.url = ""

    @property
    def settings(self) -> Settings:
        """How to reach it."""
        return Settings(nats_url=self.url)

    async def start(self, port: int | None = None) -> None:
        """Start everything; without `port` the default one, or the next that is free. Raises `Failed`, `Unavailable`."""
        if port is not None and not is_free(port):
            raise Failed(f"port {port} is in use; without --port the next one that is free is taken")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._take_directory()
        except OSError as error:
            raise Failed(f"{self.directory}: {error.strerror}") from None
        self.url = self._server.start(self.directory / "nats", port if port is not None else next_port())
        (self.directory / URL_FILE).write_text(f"{self.url}\n")
        self._watch = asyncio.create_task(self._keep_server(), name="keep the server")
        environment = {"STEER_NATS_URL": self.url, "STEER_REPLICAS": "1"}
        bus = await connect(self.settings, "steer-up", patience=READY_SECONDS)
        try:
            await streams.ensure(bus)
        finally:
            await bus.close()
        for service in self._services:
            variables = environment | (self._sources() if service == "builder" else {})
            await self._supervisor.start(Program(service, f"services.{service}", environment=variables))
        if "builder" in self._services:
            arguments = self._worker_arguments()
            await self._supervisor.start(Program("workers", "services.builder.scaler", arguments, environment))
        for agent in self._agents:
            await self._supervisor.start(agent.program(self.directory / "agents", environment))

    def _sources(self) -> dict[str, str]:
        """Where `steer build --directory` puts what it packs, unless the environment names another place."""
        name = "STEER_SOURCE_URL_BASE"
        return {name: os.environ.get(name) or url_base(self.directory)}

    def _worker_arguments(self) -> tuple[str, ...]:
        own = ("--", "--command", self._build_command) if self._build_command else ()
        return ("--data", str(self.directory / "workers"), *own)

    async def ready(self, bus: Bus) -> None:
        """Wait until every service is led and every node is alive. Raises `TimedOut` with what is missing."""
        wanted = {agent.node for agent in self._agents}
        kinds = (subjects.NODE, subjects.NODE_STATUS, subjects.TERM)
        async with following(bus, [kind.subject_filter for kind in kinds]) as world:

            def alive() -> set[str]:
                statuses = world.records(subjects.NODE_STATUS, NodeStatus)
                known = {version.key for version in world.all(subjects.NODE)}
                return {key[0] for key, status in statuses if status.state == "alive" and key in known}

            def missing() -> str:
                terms = {version.key[0] for version in world.all(subjects.TERM)}
                parts = [*(f"{name} has no leader" for name in self._services if name not in terms)]
                return ", ".join([*parts, *(f"node {name} is not alive" for name in sorted(wanted - alive()))])

            await world.until(lambda: not missing() or None, READY_SECONDS, missing)
        await self._led(bus)

    async def _led(self, bus: Bus) -> None:
        """A term of an earlier run is no leader: wait until its holder has the lease, too."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + READY_SECONDS
        while idle := set(self._services) - {leader.service for leader in await leaders(bus) if leader.holds_lease}:
            if clock() > deadline:
                raise TimedOut(f"nobody leads {', '.join(sorted(idle))} after {READY_SECONDS:g} s")
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """End everything that was started, in order; also after a start that failed half-way."""
        await self._supervisor.stop(*self._services)
        await self._supervisor.stop()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._server.stop()
        if self._lock is not None:
            (self.directory / URL_FILE).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def tails(self) -> list[tuple[Path, list[str]]]:
        """The last lines of every log."""
        server = self.directory / "nats" / SERVER_LOG
        return [*self._supervisor.tails(), (server, tail(server))]

    def _take_directory(self) -> None:
        lock = (self.directory / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Failed(f"{self.directory}: another `steer up` uses this directory") from None
        self._lock = lock

    async def _keep_server(self) -> None:
        """Start the server again where it ended by itself."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            process = self._server.process
            if process is not None and process.poll() is not None:
                self._say(f"nats-server ended with exit code {process.returncode}; starting it again")
                self._server.start(self.directory / "nats", self._server.port)


def next_port(first: int = DEFAULT_PORT) -> int:
    """The first port from here on that nobody listens on. Raises `Failed`."""
    for port in range(first, first + PORTS_TO_TRY):
        if is_free(port):
            return port
    raise Failed(f"no free port from {first} to {first + PORTS_TO_TRY - 1}")


def is_free(port: int) -> bool:
    """Whether nobody listens there: else a server could not, and whoever does would be taken for it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
