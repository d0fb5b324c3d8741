"""The scene of the faults: servers, services, those around them, and the notes of what was done to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import monotonic

from shared.runtime import bus as buses
from shared.runtime import streams, tasks
from shared.runtime.bus import Bus
from shared.runtime.follow import follow_routes
from shared.runtime.settings import Settings
from tests.faults.doers import Agents, Workers
from tests.faults.ledger import Ledger
from tests.faults.processes import Services
from tests.faults.servers import Servers
from tests.faults.users import Users
from tests.faults.waiting import until

PROXIES = ("edge-1", "edge-2")


@dataclass(frozen=True)
class Injected:
    """One fault: what was done, when it began and was over, and, of a leader that was hit, the service it led."""

    fault: str
    target: str
    began_at: datetime
    seconds: float
    silence_seconds: float
    leader_of: str = ""


@dataclass
class Scene:
    """`inject` frames a fault. `bus` is the connection of who injects and looks; the others have their own."""

    folder: Path
    servers: Servers
    services: Services
    settings: Settings
    bus: Bus
    ledger: Ledger
    agents: Agents
    workers: Workers
    users: Users
    injected: list[Injected] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    served: dict[str, int] = field(default_factory=dict)
    proxies: list[asyncio.Task[None]] = field(default_factory=list)
    probing: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def inject(self, fault: str, target: str, leader_of: str = "") -> Iterator[None]:
        """The body does it, and ends when what was hit works again."""
        self.check()
        began, began_at = monotonic(), datetime.now(UTC)
        yield
        ended = monotonic()
        silence = self.ledger.longest_silence(began, ended)
        self.injected.append(Injected(fault, target, began_at, ended - began, silence, leader_of))

    def check(self) -> None:
        """Raise what has ended somebody who should be working."""
        self.users.check()
        self.check_doers()

    def check_doers(self) -> None:
        """The same without the users, who may have gone."""
        self.agents.check()
        self.workers.check()
        for task in self.proxies:
            if task.done():
                task.result()

    async def quieten(self) -> None:
        """Nobody wants anything new; what was wanted goes on."""
        await self.users.stop()
        await self.users.put_back()
        await tasks.end(self.probing)

    async def end(self) -> None:
        """Nobody does anything any more."""
        await self.users.stop()
        await tasks.end(self.probing, *self.proxies)
        await self.agents.stop()
        await self.workers.stop()

    async def acknowledged_again(self) -> None:
        """Wait until the log takes writes again."""
        since = monotonic()
        await until(lambda: self.ledger.answered and self.ledger.answered[-1] > since, "the log takes writes again")


@contextlib.asynccontextmanager
async def scene(folder: Path, count: int, seed: int) -> AsyncIterator[Scene]:
    """Everything runs, and works, under the faults that the body injects."""
    servers = Servers(folder, count)
    services = Services(folder, servers.url, count)
    settings = Settings(nats_url=servers.url, replicas=count)
    async with contextlib.AsyncExitStack() as closing:
        closing.callback(servers.close)
        closing.push_async_callback(services.close)
        servers.start()

        async def connect(name: str) -> Bus:
            bus = await buses.connect(settings, name, patience=30)
            closing.push_async_callback(bus.close)
            return bus

        bus = await connect("faults")
        await _ensured(bus)
        ledger = Ledger()
        agents = Agents(await connect("agents"), ledger, Random(f"{seed} agents"))
        workers = Workers(await connect("workers"), ledger, Random(f"{seed} workers"))
        users = Users(await connect("users"), ledger, agents, seed)
        made = Scene(folder, servers, services, settings, bus, ledger, agents, workers, users)
        closing.push_async_callback(made.end)
        await services.start(bus)
        await agents.start()
        await workers.start()
        made.proxies = [asyncio.create_task(_serve(made, await connect(name), name)) for name in PROXIES]
        made.probing = asyncio.create_task(ledger.probe(await connect("probe")))
        await users.start()
        yield made


async def _serve(made: Scene, bus: Bus, name: str) -> None:
    """A proxy: it says which version it serves, so that nothing is stopped before."""
    async with contextlib.aclosing(follow_routes(bus, name=name)) as versions:
        async for version in versions:
            made.served[name] = version.number


async def _ensured(bus: Bus) -> None:
    async def ensured() -> bool:
        await streams.ensure(bus)  # a cluster elects its leader first
        return True

    await until(ensured, "the streams are made")
