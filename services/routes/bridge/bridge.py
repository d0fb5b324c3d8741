"""The loop of a bridge: the newest version to the proxy, what came of it to the log."""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import structlog

from services.routes.bridge.statistics import Counts, Rates
from services.routes.render import Rendered, Renderer
from shared.errors import SteerError, Unavailable
from shared.model.live import Demand
from shared.runtime import tasks
from shared.runtime.bus import Bus
from shared.runtime.follow import Report, RouteVersion, follow_routes

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
RETRY_SECONDS = (0.5, 30.0)


class Refused(SteerError):
    """The proxy does not take a configuration, or does not answer; the text is for people."""


class Proxy(Protocol):
    """`apply` returns when the proxy serves by the configuration. All of it raises `Refused`."""

    @property
    def pause_seconds(self) -> float: ...
    async def apply(self, rendered: Rendered, mark: str) -> None: ...
    async def serves(self, mark: str) -> bool: ...
    async def counts(self) -> dict[str, Counts]: ...


class Bridge:
    def __init__(self, proxy: Proxy, renderer: Renderer, name: str, cache: Path | None = None) -> None:
        self._proxy = proxy
        self._renderer = renderer
        self._name = name
        self._cache = cache
        self._wanted: RouteVersion | None = None
        self._delay = RETRY_SECONDS[0]
        self._retry_at = 0.0
        self._environments: Mapping[str, str] = {}
        self._left_out: tuple[str, ...] = ()
        self._demand: dict[str, Demand] = {}
        self._rates = Rates()
        self.report = Report(lambda: self._demand)

    async def run(self, bus: Bus, stop: asyncio.Event) -> None:
        """Until `stop`. Raises `Unavailable` when the connection is gone for good."""
        versions = follow_routes(bus, name=self._name, cache=self._cache, report=self.report)
        coming = asyncio.ensure_future(anext(versions))
        ends = [asyncio.create_task(stop.wait()), asyncio.create_task(bus.closed.wait())]
        clock = asyncio.get_running_loop().time
        try:
            while not any(end.done() for end in ends):
                until = max(0.0, self._retry_at - clock()) if self.report.error else LOOK_SECONDS
                await asyncio.wait([coming, *ends], timeout=until, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    version = self._wanted = coming.result()
                    self._renderer.change((subject, version.record(subject)) for subject in version.changed)
                    self._delay = RETRY_SECONDS[0]
                    await self._apply(version)
                    coming = asyncio.ensure_future(anext(versions))
                else:
                    await self._look()
            if not stop.is_set():
                raise Unavailable("the connection to NATS is closed for good")
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            with contextlib.suppress(RuntimeError):
                await versions.aclose()
            await tasks.end(*ends)

    async def _look(self) -> None:
        """Does the proxy still have it? If not, again. And what load does it see?"""
        wanted = self._wanted
        if wanted is None:
            return
        try:
            if not await self._proxy.serves(mark_of(wanted)):
                self.report.failed(f"the proxy does not have version {wanted.number}")
                await self._apply(wanted)
            elif self.report.error:
                self.report.applied(wanted)
            clock = asyncio.get_running_loop().time()
            counts = await self._proxy.counts()
        except Refused as error:
            self._failed(str(error))
            return
        self._demand = self._rates.demand(counts, self._environments, clock, datetime.now(UTC))

    async def _apply(self, version: RouteVersion) -> None:
        mark = mark_of(version)
        rendered = self._renderer.rendered(mark)
        self._environments = rendered.environments
        if rendered.left_out != self._left_out:
            self._left_out = rendered.left_out
            for text in rendered.left_out:
                log.warning("not all of the routes is served", reason=text)
        try:
            await self._proxy.apply(rendered, mark)
        except Refused as error:
            self._failed(str(error))
            return
        self._delay = RETRY_SECONDS[0]
        self.report.applied(version)
        log.info("applied", version=version.number)
        await asyncio.sleep(self._proxy.pause_seconds)

    def _failed(self, reason: str) -> None:
        if reason != self.report.error:
            log.error("not applied; it is tried again", reason=reason)
        self.report.failed(reason)
        self._retry_at = asyncio.get_running_loop().time() + self._delay
        self._delay = min(self._delay * 2, RETRY_SECONDS[1])


def mark_of(version: RouteVersion) -> str:
    """Names the version inside a configuration."""
    return f"steer-{version.number}-{version.digest[:16]}"
