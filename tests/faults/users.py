"""Users and CI under a seed: they deploy, scale, move traffic, change functions, build, and err. Never a pause.

What each does next comes from its own generator, so a seed gives the same wishes; when they are fulfilled depends on the
faults.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from random import Random

from shared import subjects
from shared.model.build import BuildPool, BuildRequest
from shared.model.domain import Domain
from shared.model.environment import Environment, Replicas, ServiceSpec
from shared.model.function import Function, Pooling
from shared.model.node import NodeControl
from shared.model.pool import Runtime
from shared.model.release import DeployRequest, Release
from shared.model.run import PortSpec, RunSpec
from shared.runtime import tasks
from shared.runtime.bus import Bus
from shared.subjects import Key
from tests.faults.doers import NODES, POOL, Agents
from tests.faults.ledger import Ledger

APPS = ("web", "cart", "search", "mail")
FUNCTIONS = 12
WORKERS = (None, "shared", "other")
PAUSE_SECONDS = (0.1, 0.7)
RUN = RunSpec(command=("serve",), ports=(PortSpec(name="http", container_port=8080),))
BAD = (
    "steer.environment.shop.web.production",
    "steer.domain.shop.web",
    "steer.build_pool.default",
    "steer.access.a.f0",
)


def environment(app: str) -> Key:
    return ("shop", app, "production")


class Users:
    """`start`, `stop`, `put_back`; `counts` says how often each wish was acknowledged."""

    def __init__(self, bus: Bus, ledger: Ledger, agents: Agents, seed: int) -> None:
        self._bus, self._ledger, self._agents = bus, ledger, agents
        self._seed = seed
        self._versions = dict.fromkeys(APPS, 0)
        self._id = 0
        self.drained: set[str] = set()
        self.counts: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._awake = asyncio.Event()
        self._awake.set()

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nobody wants anything meanwhile: where so many are served here that little is left for anybody else."""
        self._awake.clear()
        yield
        self._awake.set()

    async def start(self) -> None:
        """The world as it begins, then everybody at once."""
        put = self._ledger.insist
        await put(self._bus, subjects.RUNTIME, ("python",), Runtime(run=RUN.with_image("exec:python")))
        await put(self._bus, subjects.BUILD_POOL, (POOL,), BuildPool(min_workers=2, max_workers=4))
        for app in APPS:
            spec = Environment(replicas=Replicas(min=2, max=6), drain_window_seconds=1)
            await put(self._bus, subjects.ENVIRONMENT, environment(app), spec)
        wishes: tuple[Callable[[Random], Awaitable[bool]], ...] = (
            self.deploy,
            self.scale,
            self.route,
            self.function,
            self.build,
            self.disturb,
        )
        self._tasks = [
            asyncio.create_task(self._keep(wish, Random(f"{self._seed} {wish.__name__}"))) for wish in wishes
        ]

    async def stop(self) -> None:
        """Everybody goes."""
        await tasks.end(*self._tasks)

    async def put_back(self) -> None:
        """What was taken out of service for a while is there again."""
        for node in sorted(self.drained):
            await self._ledger.insist(self._bus, subjects.NODE_CONTROL, (node,), NodeControl())

    def check(self) -> None:
        """Raise what has ended one of them."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def _keep(self, wish: Callable[[Random], Awaitable[bool]], random: Random) -> None:
        while True:
            await self._awake.wait()
            if await wish(random):
                self.counts[wish.__name__] = self.counts.get(wish.__name__, 0) + 1
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))

    def _new_id(self) -> str:
        self._id += 1
        return f"{self._id:026d}"

    async def deploy(self, random: Random) -> bool:
        """A release and the request for it; now and then the request is taken back."""
        app = random.choice(APPS)
        self._versions[app] += 1
        version, key = str(self._versions[app]), (*environment(app), self._new_id())
        release = Release(image=f"exec:{app}-{version}", service=ServiceSpec(run=RUN))
        if not await self._ledger.put(
            self._bus, subjects.RELEASE, (*environment(app), version), release, new=True
        ) or not await self._ledger.put(self._bus, subjects.DEPLOY, key, DeployRequest(version=version)):
            return False
        await asyncio.sleep(random.uniform(0, 3))
        if random.random() < 0.1:
            canceled = DeployRequest(version=version, canceled=True)
            await self._ledger.put(self._bus, subjects.DEPLOY, key, canceled)
        return True

    async def scale(self, random: Random) -> bool:
        app = random.choice(APPS)
        spec = Environment(replicas=Replicas(min=random.randint(1, 5), max=6), drain_window_seconds=1)
        return await self._ledger.put(self._bus, subjects.ENVIRONMENT, environment(app), spec)

    async def route(self, random: Random) -> bool:
        app = random.choice(APPS)
        name = f"{app}-{random.randrange(3)}"
        domain = Domain(hostname=f"{name}.example.com", environment=f"{app}/production", port="http")
        gone = random.random() < 0.3
        return await self._ledger.put(self._bus, subjects.DOMAIN, ("shop", name), None if gone else domain)

    async def function(self, random: Random) -> bool:
        key = (random.choice(("a", "b")), f"f{random.randrange(FUNCTIONS)}")
        record = Function(
            runtime="python",
            handler="main.handle",
            artifact=f"{key[1]}@{random.randrange(5)}",
            pooling=Pooling(worker=random.choice(WORKERS)),
        )
        gone = random.random() < 0.2
        return await self._ledger.put(self._bus, subjects.FUNCTION, key, None if gone else record)

    async def build(self, random: Random) -> bool:
        key = ("shop", random.choice(APPS), self._new_id())
        record = BuildRequest(owner=random.choice("xyz"), source_digest=f"sha256:{random.getrandbits(256):064x}")
        stored = await self._ledger.put(self._bus, subjects.BUILD, key, record)
        if stored and random.random() < 0.1:
            await self._ledger.put(self._bus, subjects.BUILD, key, record.replaced(canceled=True))
        return stored

    async def disturb(self, random: Random) -> bool:
        """A replica fails, a node is drained or put back, or somebody publishes what nobody can read."""
        what = random.random()
        if what < 0.5:
            await self._agents.fail()
        elif what < 0.8:
            await self._ledger.bad(self._bus, random.choice(BAD), b'{"half": ')
        elif self.drained:
            node = random.choice(sorted(self.drained))
            if await self._ledger.put(self._bus, subjects.NODE_CONTROL, (node,), NodeControl()):
                self.drained.discard(node)
        else:
            node = random.choice(NODES)
            self.drained.add(node)
            return await self._ledger.put(self._bus, subjects.NODE_CONTROL, (node,), NodeControl(drain=True))
        return True
