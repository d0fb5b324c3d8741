"""Followers and bridges on the real server: cut off, restarted, deceived, refused, and two hundred at once."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from services.routes.bridge.bridge import Bridge, Refused
from services.routes.bridge.statistics import Counts
from services.routes.render import FORMS, Options, Rendered, Renderer
from services.routes.service import service
from shared import codec, subjects
from shared.model.live import ProxySample
from shared.model.route import RouteManifest
from shared.model.service import Term
from shared.runtime import follower as followers
from shared.runtime import records
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.follow import RouteVersion, follow_routes
from shared.runtime.route_table import read_cache
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from shared.runtime.tasks import end
from tests.integration.running import eventually
from tests.routing import World

HOST = "shop.example.com"
HERD = 200


class Publisher(World):
    """A world whose records go to the real log as well."""

    def __init__(self, bus: Bus) -> None:
        super().__init__("")
        self.bus = bus
        self.sent = 0

    async def send(self) -> None:
        for version in self.versions[self.sent :]:
            await records.put(self.bus, version.kind, version.key, version.record)
        self.sent = len(self.versions)


@pytest.fixture
async def routes(bus: Bus, settings: Settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(serve(service(""), settings, stop=stop))
    yield
    stop.set()
    await asyncio.wait_for(running, 60)


@pytest.fixture
async def world(bus: Bus) -> Publisher:
    world = Publisher(bus)
    world.environment()
    world.node("n1")
    world.release("1")
    world.replica("web-1")
    world.promote("1")
    world.domain_of("main", HOST)
    world.domain_of("old", "old.example.com")
    await world.send()
    return world


async def until(versions: AsyncGenerator[RouteVersion, None], holds: Callable[[RouteVersion], bool]) -> RouteVersion:
    async with asyncio.timeout(60):
        while True:
            version = await anext(versions)
            if holds(version):
                return version


def address(version: RouteVersion, host: str = HOST) -> str:
    found = version.hosts.get(host)
    return found.routes[0].endpoints[0].address if found and found.routes[0].endpoints else ""


async def manifest(bus: Bus) -> RouteManifest:
    version = await records.get(bus, subjects.ROUTE_MANIFEST, ())
    assert version is not None and isinstance(version.record, RouteManifest)
    return version.record


class Cable:
    """Between a client and the server; it can be cut, and mended."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self.port = 0

    @asynccontextmanager
    async def laid(self) -> AsyncIterator["Cable"]:
        await self.mend()
        try:
            yield self
        finally:
            self.cut()
            await asyncio.gather(*self._carrying, return_exceptions=True)

    def cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None and self._server is not None
        self._carrying.add(handler)
        self._open.add(writer)
        try:
            if not self._server.is_serving():  # cut before it was heard of
                return
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
            self._open.add(back)
            if writer.transport.is_closing():  # cut meanwhile
                back.transport.abort()
            ways = [asyncio.create_task(self._carry(reader, back)), asyncio.create_task(self._carry(there, writer))]
            self._carrying.update(ways)
            await asyncio.wait(ways)
            self._open.discard(back)
        finally:
            writer.transport.abort()
            self._open.discard(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()


async def test_scenario_29_deleted_while_disconnected(
    server: EmbeddedServer, bus: Bus, routes: None, world: Publisher
) -> None:
    async with Cable(server.port).laid() as cable:
        far = await connect(Settings(nats_url=f"nats://127.0.0.1:{cable.port}"), "far", patience=60)
        try:
            async with aclosing(follow_routes(far)) as versions:
                before = await until(versions, lambda version: address(version) != "")
                following = asyncio.create_task(until(versions, lambda version: "new.example.com" in version.hosts))
                cable.cut()
                await eventually(lambda: not far.connected.is_set())
                world.delete(subjects.DOMAIN, "shop", "old")
                world.report("web-1", state="unhealthy")
                world.domain_of("new", "new.example.com")
                await world.send()
                await eventually(lambda: closed_after(bus, before.number))
                await cable.mend()
                after = await following
                last = await until_digest(versions, after, await manifest(bus))
        finally:
            await far.close()
    assert "old.example.com" not in last.hosts
    assert last.hosts[HOST].routes[0].endpoints == (), "a host without an endpoint is sent, not left out"


async def closed_after(bus: Bus, number: int) -> bool:
    stored = {version.key for version in await records.load(bus, [subjects.ROUTE_HOST.subject_filter])}
    gone = subjects.host_key("old.example.com") not in stored
    return gone and subjects.host_key("new.example.com") in stored and (await manifest(bus)).version > number


async def until_digest(
    versions: AsyncGenerator[RouteVersion, None], version: RouteVersion, wanted: RouteManifest
) -> RouteVersion:
    """The version of a manifest, or a later one."""
    return version if version.number >= wanted.version else await until(versions, lambda v: v.number >= wanted.version)


async def test_scenario_27_watch_silently_dead(
    server: EmbeddedServer, bus: Bus, routes: None, world: Publisher, tmp_path: Path
) -> None:
    seen: list[RouteVersion] = []

    async def follow() -> None:
        async for version in follow_routes(bus):
            seen.append(version)

    following = asyncio.create_task(follow())
    await eventually(lambda: seen and address(seen[-1]))
    server.kill()
    server.start(tmp_path / "jetstream", server.port)
    for number in (30_007, 30_008, 30_009):
        world.report("web-1", ports={"http": number})
        await world.send()
    await eventually(lambda: address(seen[-1]).endswith(":30009"))
    numbers = [version.number for version in seen]
    assert numbers == sorted(set(numbers)), "no version comes twice, and none goes back"
    async with aclosing(follow_routes(bus)) as versions:
        fresh = await until(versions, lambda version: version.number >= seen[-1].number)
    assert (fresh.digest, fresh.hosts) == (seen[-1].digest, seen[-1].hosts)
    await end(following)


async def test_scenario_26_reconnect_herd(
    server: EmbeddedServer, bus: Bus, settings: Settings, routes: None, world: Publisher, tmp_path: Path
) -> None:
    herd = await asyncio.gather(*(connect(settings, f"edge-{number}", patience=60) for number in range(HERD)))
    latest: dict[int, RouteVersion] = {}
    initial: list[int] = []

    async def follow(number: int) -> None:
        async for version in follow_routes(herd[number]):
            latest[number] = version
            initial.extend([number] * version.initial)

    following = [asyncio.create_task(follow(number)) for number in range(HERD)]
    await eventually(lambda: len(latest) == HERD and all(map(address, latest.values())))
    before = sum(each.nc.stats["in_bytes"] for each in herd)
    server.kill()
    server.start(tmp_path / "jetstream", server.port)
    began = time.monotonic()
    world.report("web-1", ports={"http": 30_009})
    await world.send()
    await eventually(lambda: all(address(each).endswith(":30009") for each in latest.values()))
    received = sum(each.nc.stats["in_bytes"] for each in herd) - before
    print(f"{HERD} followers in {time.monotonic() - began:.1f} s, {received / HERD:.0f} bytes each")  # noqa: T201
    assert len(initial) == HERD, "nobody loaded the whole again"
    await end(*following)
    await asyncio.gather(*(each.close() for each in herd))


async def test_a_digest_that_differs_makes_the_follower_itself_load_anew(
    bus: Bus, world: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No service of routes runs, so nobody corrects the manifest but this test."""
    world.publish()
    await world.send()
    reloads: list[str] = []
    distrust = followers.Follower.distrust

    def counted(self: followers.Follower, reason: str) -> None:
        reloads.append(reason)
        distrust(self, reason)

    monkeypatch.setattr(followers.Follower, "distrust", counted)
    async with aclosing(follow_routes(bus)) as versions:
        good = await until(versions, lambda version: address(version) != "")
        right = await manifest(bus)
        following = asyncio.create_task(anext(versions))
        wrong = right.model_copy(update={"version": right.version + 1, "digest": "0" * 64})
        await records.put(bus, subjects.ROUTE_MANIFEST, (), wrong)
        await eventually(lambda: reloads == ["the digest of the routes differs"])
        assert not following.done()
        await records.put(bus, subjects.ROUTE_MANIFEST, (), right.model_copy(update={"version": right.version + 2}))
        version = await asyncio.wait_for(following, 60)
        assert (version.number, version.digest) == (right.version + 2, good.digest)


async def test_the_cache_has_the_last_version_when_a_follower_is_stopped(
    bus: Bus, routes: None, world: Publisher, tmp_path: Path
) -> None:
    cache = tmp_path / "routes.json"
    latest: list[RouteVersion] = []

    async def follow() -> None:
        async with aclosing(follow_routes(bus, cache=cache)) as versions:
            async for version in versions:
                latest.append(version)

    following = asyncio.create_task(follow())
    await eventually(lambda: latest and address(latest[-1]))
    world.report("web-1", ports={"http": 30_009})  # too soon after the last for the file, but for the end
    await world.send()
    await eventually(lambda: address(latest[-1]).endswith(":30009"))
    await end(following)
    found = read_cache(cache)
    assert found is not None and (found.number, found.hosts) == (latest[-1].number, latest[-1].hosts)


async def test_versions_go_on_without_a_gap_when_one_instance_of_routes_hands_over_to_another(
    bus: Bus, settings: Settings, world: Publisher
) -> None:
    stops = [asyncio.Event(), asyncio.Event()]
    running = [asyncio.create_task(serve(service(""), settings, stop=stop)) for stop in stops]
    seen: list[RouteVersion] = []

    async def follow() -> None:
        async for version in follow_routes(bus):
            seen.append(version)

    following = asyncio.create_task(follow())
    await eventually(lambda: seen and address(seen[-1]))
    first = await term(bus)
    for number, stop in ((30_008, stops[0]), (30_009, stops[1])):
        world.report("web-1", ports={"http": number})
        await world.send()
        await eventually(lambda: address(seen[-1]).endswith(f":{number}"))  # noqa: B023 - awaited here
        stop.set()
        await asyncio.wait_for(running[stops.index(stop)], 60)
    numbers = [version.number for version in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "each the next of the one before"
    assert (await term(bus)).opened_at >= first.opened_at
    await end(following)


async def term(bus: Bus) -> Term:
    version = await records.get(bus, subjects.TERM, ("routes",))
    assert version is not None and isinstance(version.record, Term)
    return version.record


class Picky:
    """A proxy that refuses what is marked so, and can lose what it has."""

    pause_seconds = 0.0

    def __init__(self) -> None:
        self.has = ""
        self.refuses = False
        self.taken: list[str] = []

    async def apply(self, rendered: Rendered, mark: str) -> None:
        if self.refuses:
            raise Refused("no room for more")
        self.has = mark
        self.taken.append(mark)

    async def serves(self, mark: str) -> bool:
        return self.has == mark

    async def counts(self) -> dict[str, Counts]:
        return {}


@pytest.fixture
async def picky(bus: Bus) -> AsyncIterator[Picky]:
    proxy, stop = Picky(), asyncio.Event()
    bridge = Bridge(proxy, Renderer(FORMS["caddy"], Options()), "edge-1")
    running = asyncio.create_task(bridge.run(bus, stop))
    yield proxy
    stop.set()
    await asyncio.wait_for(running, 60)


async def heard(bus: Bus, holds: Callable[[ProxySample], bool]) -> ProxySample:
    subscription = await bus.nc.subscribe(subjects.live_proxy("edge-1"))
    try:
        async with asyncio.timeout(60):
            async for message in subscription.messages:
                sample = codec.validate(ProxySample, message.subject, message.data)
                if holds(sample):
                    return sample
        raise AssertionError("it is heard no more")
    finally:
        await subscription.unsubscribe()


async def test_scenario_12_what_a_proxy_refuses_is_not_acknowledged(
    bus: Bus, routes: None, world: Publisher, picky: Picky
) -> None:
    await eventually(lambda: picky.has)
    good = await heard(bus, lambda sample: sample.version > 0)
    picky.refuses = True
    complaint = asyncio.create_task(heard(bus, lambda sample: sample.error != ""))
    world.report("web-1", ports={"http": 30_009})
    await world.send()
    sample = await complaint
    assert sample.error == "no room for more"
    assert sample.version == int(picky.has.split("-")[1]), "the one before"
    served = picky.has
    accepted = asyncio.create_task(heard(bus, lambda sample: sample.error == "" and sample.version > good.version))
    picky.refuses = False
    assert (await accepted).digest == (await manifest(bus)).digest
    assert picky.has != served


async def test_a_proxy_that_has_lost_its_routes_gets_them_again(
    bus: Bus, routes: None, world: Publisher, picky: Picky
) -> None:
    await eventually(lambda: picky.has)
    await heard(bus, lambda sample: sample.version == 1 or sample.version > 1)
    picky.has = ""
    await eventually(lambda: picky.has)
