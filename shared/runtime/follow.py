"""Following the routes: the client for proxies and bridges in Python.

    async for version in follow_routes(bus, name="edge-1", cache=Path("routes.json")):
        apply(version)

A version's records come first and its manifest closes it, so records are held back until their manifest is there, and
the whole is switched at once: what is served is never a mixture. The manifest's digest is checked at every version.
Where it differs during a load, the load overlapped a version that is not closed yet, and the next manifest settles it;
where it differs after that, everything is loaded anew, while the last good version goes on being served.

With `name`, what is served is acknowledged on `steer.live.proxy.<name>`: when the body of the loop is done with a
version, and every 5 s. A replica that drains is stopped only after this. A consumer that can fail to apply a version, or
that has a load to report at once, gives a `Report`. With `cache`, what is served is also kept in a file, a second or so
behind (a large table: some seconds; a clean stop: none), and a process that starts while the bus is away serves from it.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Protocol, cast

import structlog

from shared import codec, subjects
from shared.model.live import Demand, ProxySample
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.paced import Paced
from shared.runtime.route_table import RouteTable, RouteVersion, match, read_cache, write_cache
from shared.subjects import ROUTE_SUBJECTS

__all__ = ["Report", "RouteVersion", "follow_routes", "match"]

log = structlog.get_logger(__name__)

ACKNOWLEDGE_SECONDS = 5.0
ACKNOWLEDGE_AT_MOST_EVERY = 0.25
CACHE_AT_MOST_EVERY = 1.0
CACHE_BYTES_PER_SECOND = 2_000_000
"""On average, while versions go on: a large table is written seldom."""

RELOAD_SECONDS = (0.5, 30.0)

DemandNow = Callable[[], Mapping[str, Demand]]
"""The load by environment (`project/app/environment`), asked for each acknowledgement."""


class Source(Protocol):
    """Where the messages come from: a `Follower`."""

    caught_up: bool

    async def next(self, timeout: float | None) -> list[Message] | Restarted: ...  # noqa: ASYNC109 - see `Follower`

    def distrust(self, reason: str) -> None: ...


class Report:
    """What a consumer says of itself beside the version that it serves.

    While it has `failed` with a version, the end of the loop's body acknowledges nothing: the sample goes on to name the
    version before, with the error. `applied` acknowledges a version that came about later.
    """

    def __init__(self, demand: DemandNow | None = None) -> None:
        self.demand: DemandNow = demand or dict
        self.error = ""
        self.serves: RouteVersion | None = None
        self._soon: Callable[[], None] = lambda: None

    def changed(self) -> None:
        """Send a sample at once, four a second at most: the demand is another."""
        self._soon()

    def failed(self, reason: str) -> None:
        self.error = reason
        self._soon()

    def applied(self, version: RouteVersion) -> None:
        self.error = ""
        self.serves = version
        self._soon()

    def finished(self, version: RouteVersion) -> None:
        """The body of the loop is done with the version."""
        if not self.error:
            self.applied(version)

    def sent_by(self, soon: Callable[[], None]) -> None:
        self._soon = soon


async def follow_routes(
    bus: Bus | Awaitable[Bus],
    *,
    name: str | None = None,
    cache: Path | None = None,
    demand: DemandNow | None = None,
    report: Report | None = None,
) -> AsyncGenerator[RouteVersion, None]:
    """Every version of the routes from now on, the one in force first. Ends never; close it to stop.

    `bus` may be a connection that is still to be made (`connect(settings, name)`): what the cache holds is given before
    it is there, and it is closed at the end. Under load versions are skipped, never mixed: the next one given is the
    newest that is complete.
    """
    session = _Session(name, cache, report or Report(demand))
    connecting = asyncio.ensure_future(bus) if isinstance(bus, Awaitable) else None
    try:
        cached = session.from_cache()
        if cached is not None:
            yield cached
            session.applied(cached)
        session.bus = await connecting if connecting is not None else cast(Bus, bus)
        session.start()
        follower = Follower(session.bus, [ROUTE_SUBJECTS])
        await follower.start()
        try:
            async with aclosing(session.versions(follower)) as versions:
                async for version in versions:
                    yield version
                    session.applied(version)
        finally:
            await follower.stop()
    finally:
        await session.stop()
        if connecting is not None:
            await _end(connecting)


async def _end(connecting: asyncio.Future[Bus]) -> None:
    """A connection that was made for us is ours to close."""
    connecting.cancel()
    (bus,) = await asyncio.gather(connecting, return_exceptions=True)
    if isinstance(bus, Bus):
        await bus.close()


class _Session:
    """One consumer of routes: the table that is built, the version that is served, and what runs beside them."""

    def __init__(
        self,
        name: str | None,
        cache: Path | None,
        report: Report,
        reload_seconds: tuple[float, float] = RELOAD_SECONDS,
    ) -> None:
        self.bus: Bus | None = None
        self._reload_seconds = reload_seconds
        self._name = name
        self._cache = cache
        self._report = report
        self._table = RouteTable()
        self._given: RouteVersion | None = None
        self._cached: RouteVersion | None = None
        self._error = ""
        self._acknowledging = Paced(self._acknowledge, ACKNOWLEDGE_AT_MOST_EVERY, ACKNOWLEDGE_SECONDS)
        self._caching = Paced(self._keep_cache, CACHE_AT_MOST_EVERY)
        self._writing = threading.Lock()
        report.sent_by(self._acknowledging.soon)

    def from_cache(self) -> RouteVersion | None:
        found = read_cache(self._cache) if self._cache is not None else None
        if found is not None:
            self._given = self._cached = found
            log.info("serving routes from the cache", version=found.number, path=str(self._cache))
        return found

    def applied(self, version: RouteVersion) -> None:
        """The consumer is done with it."""
        self._report.finished(version)
        self._caching.soon()

    def start(self) -> None:
        if self._name is not None:
            self._acknowledging.start()
        if self._cache is not None:
            self._caching.start()

    async def stop(self) -> None:
        await self._acknowledging.stop()
        await self._caching.stop()
        try:
            await self._write_cache()
        except OSError as error:
            log.warning("the last version is not in the cache", path=str(self._cache), reason=str(error))

    async def versions(self, follower: Source) -> AsyncGenerator[RouteVersion, None]:
        """Each version that is complete and whose digest agrees, if it differs from the one given before."""
        delay, longest = self._reload_seconds
        while True:
            batch = await follower.next(None)
            if isinstance(batch, Restarted):
                self._table = RouteTable()
                continue
            closed = [self._table.take(message) for message in batch]
            if self._table.verified and any(closed):
                delay = self._reload_seconds[0]
                self._say("")
                version = self._table.version(self._given)
            elif follower.caught_up and self._table.empty and self._given is None:
                version = self._table.version(None)  # nothing is routed yet; an empty log never ends what is served
            else:
                version = None
            if version is not None:
                self._given = version
                yield version
            if follower.caught_up and self._table.broken:
                self._say(f"version {self._table.number}: the digest of its records is not the manifest's")
                await asyncio.sleep(delay)
                delay = min(delay * 2, longest)
                follower.distrust("the digest of the routes differs")

    def _say(self, error: str) -> None:
        if error != self._error:
            self._error = error
            self._acknowledging.soon()
            if error:
                log.error("loading the routes anew", reason=error)

    async def _acknowledge(self) -> None:
        if self.bus is None or self._name is None or not self.bus.connected.is_set():
            return
        serves = self._report.serves
        sample = ProxySample(
            version=serves.number if serves else 0,
            digest=serves.digest if serves else "",
            error=self._report.error or self._error,
            demand=dict(self._report.demand()),
        )
        await self.bus.publish(subjects.live_proxy(self._name), codec.encode(sample))

    async def _keep_cache(self) -> None:
        await asyncio.sleep(await self._write_cache() / CACHE_BYTES_PER_SECOND)

    async def _write_cache(self) -> int:
        """How many bytes were written: none where the file has what is served."""
        serves = self._report.serves
        if self._cache is None or serves is None or not serves.number or serves is self._cached:
            return 0
        size = await asyncio.to_thread(self._write, self._cache, serves)
        self._cached = serves
        return size

    def _write(self, path: Path, version: RouteVersion) -> int:
        with self._writing:  # a thread goes on when nobody waits for it any more
            return write_cache(path, version)
