"""One activator from its start to its stop.

A stop takes no new connection, lets the requests under way and those that wait come to their end for a while, and goes on
following the routes meanwhile, so that what is woken still finds who waits for it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import structlog
from aiohttp import web

from services.activator.forward import client
from services.activator.gate import Gate
from services.activator.led import Led
from services.activator.server import HOLD_SECONDS, Front
from services.activator.waking import Waker
from shared.errors import ConfigurationError
from shared.model.route import HostRoutes, HTTPRoute
from shared.runtime import tasks
from shared.runtime.bus import Bus
from shared.runtime.follow import Report, RouteVersion, follow_routes, match
from shared.runtime.process import until_stopped, work_on_bus
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Config:
    """`listen` is `host:port`; port 0 takes a free one. `cache` is a file that serves while the bus is away."""

    name: str
    listen: str = "127.0.0.1:8081"
    cache: Path | None = None
    hold_seconds: float = HOLD_SECONDS
    stop_seconds: float = STOP_SECONDS


class Activator:
    """What one activator consists of. `serving` is set, with the `port`, once it listens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.version: RouteVersion | None = None
        self.serving = asyncio.Event()
        self.port = 0
        self.gate = Gate(self._find, Random())
        self.report = Report()

    async def run(self, bus: Bus, stop: asyncio.Event) -> None:
        """Until `stop`. Raises `Unavailable` when the connection is gone for good."""
        waker = Waker(bus, self.config.name, lambda name: self.gate.parked(name) if self.gate.cold(name) else 0)
        async with client() as session:
            front = Front(self.gate, session, waker.wake, self.report.changed, self.config.hold_seconds)
            self.report.demand = front.demand
            following = asyncio.create_task(self._follow(bus, front), name="follow the routes")
            try:
                async with self._listening(front):
                    await until_stopped(bus, stop, [following])
            finally:
                await waker.stop()
                await tasks.end(following)

    def _find(self, host: str, path: str) -> HTTPRoute | None:
        return match(self.version, host, path) if self.version is not None else None

    async def _follow(self, bus: Bus, front: Front) -> None:
        versions = follow_routes(bus, name=self.config.name, cache=self.config.cache, report=self.report)
        led = Led()
        async with aclosing(versions):
            async for version in versions:
                self.version = version
                changed = ((subject, version.record(subject)) for subject in version.changed)
                hosts = ((name, each if isinstance(each, HostRoutes) else None) for name, each in changed)
                front.counter.forget(led.change(hosts))
                self.gate.admit()

    @asynccontextmanager
    async def _listening(self, front: Front) -> AsyncIterator[None]:
        server = web.Server(front.handle, handler_cancellation=True, auto_decompress=False, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=self.config.stop_seconds)
        await runner.setup()
        host, _, port = self.config.listen.rpartition(":")
        site = web.TCPSite(runner, host.strip("[]") or None, int(port), backlog=1024)
        try:
            try:
                await site.start()
            except OSError as error:
                raise ConfigurationError(f"--listen {self.config.listen}: {error.strerror}") from error
            self.port = int(runner.addresses[0][1])
            log.info("listening", address=self.config.listen, port=self.port)
            self.serving.set()
            yield
        finally:
            with suppress(TimeoutError):
                await runner.cleanup()

    @property
    def problem(self) -> str:
        """Why it is not ready; empty when it is."""
        return "" if self.version is not None and self.serving.is_set() else "the routes are not loaded yet"


async def run_activator(settings: Settings, config: Config, stop: asyncio.Event) -> None:
    """Connect and run one activator until `stop`. Waits for a server that is away."""
    activator = Activator(config)

    def gauges() -> dict[str, float]:
        return {
            "steer_route_version": activator.version.number if activator.version else 0,
            "steer_activator_inflight": sum(activator.gate.busy.values()),
            "steer_activator_parked": sum(map(len, activator.gate.waiting.values())),
        }

    await work_on_bus(
        settings, config.name, stop, lambda bus: activator.run(bus, stop), gauges, lambda: activator.problem
    )
