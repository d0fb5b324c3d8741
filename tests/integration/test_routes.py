"""Routes on the real server: the service, its follower, the acknowledgement, the cache and the whole snapshot."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from services.routes import snapshot_writer
from services.routes.service import service
from services.routes.snapshot import pack, unpack
from shared import codec, subjects
from shared.errors import RequestRefused, Unavailable
from shared.model.environment import RateLimit
from shared.model.live import Demand, ProxySample
from shared.model.route import RouteManifest, RouteSnapshot
from shared.runtime import reactions, records
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.encode import EXPECTED
from shared.runtime.follow import RouteVersion, follow_routes
from shared.runtime.reactions import Reaction
from shared.runtime.route_table import read_cache
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from tests.routing import ENV, World, spec

T = TypeVar("T")


class Publisher(World):
    """A world whose foreign records go to the real log as well."""

    def __init__(self, bus: Bus) -> None:
        super().__init__("example.net")
        self.bus = bus
        self.sent = 0

    async def send(self) -> int:
        """Publish what was written since the last time; the sequence of the last."""
        sequence = 0
        for version in self.versions[self.sent :]:
            sequence = await records.put(self.bus, version.kind, version.key, version.record)
        self.sent = len(self.versions)
        return sequence


@pytest.fixture
async def routes(bus: Bus, settings: Settings) -> AsyncIterator[None]:
    """The service, running."""
    stop = asyncio.Event()
    running = asyncio.create_task(
        serve(service("example.net"), settings, stop=stop, alongside=[snapshot_writer.write_snapshots])
    )
    yield
    stop.set()
    await asyncio.wait_for(running, 60)


@pytest.fixture
async def world(bus: Bus) -> Publisher:
    """One routed replica."""
    world = Publisher(bus)
    world.environment()
    world.node("n1")
    world.release("1")
    world.replica("web-1")
    world.promote("1")
    world.domain_of("main", "shop.example.com")
    await world.send()
    return world


async def eventually(probe: Callable[[], Awaitable[T | None]], seconds: float = 20) -> T:
    """The first result of `probe` that is neither None nor False."""
    async with asyncio.timeout(seconds):
        while True:
            found = await probe()
            if found:
                return found
            await asyncio.sleep(0.02)


async def until(versions: AsyncGenerator[RouteVersion, None], holds: Callable[[RouteVersion], bool]) -> RouteVersion:
    async with asyncio.timeout(60):
        while True:
            version = await anext(versions)
            if holds(version):
                return version


def addresses(version: RouteVersion, hostname: str = "shop.example.com") -> list[str]:
    host = version.hosts.get(hostname)
    return [endpoint.address for route in host.routes for endpoint in route.endpoints] if host else []


async def sample(bus: Bus, name: str, holds: Callable[[ProxySample], bool]) -> ProxySample:
    """The first acknowledgement on the wire that fits."""
    subscription = await bus.nc.subscribe(subjects.live_proxy(name))
    try:
        async with asyncio.timeout(60):
            async for message in subscription.messages:
                heard = codec.validate(ProxySample, message.subject, message.data)
                if holds(heard):
                    return heard
            raise AssertionError(f"{name} is heard no more")
    finally:
        await subscription.unsubscribe()


async def test_a_promotion_reaches_a_follower_as_one_version(bus: Bus, routes: None, world: Publisher) -> None:
    async with aclosing(follow_routes(bus)) as versions:
        await until(versions, lambda version: addresses(version) == ["10.0.0.1:30001"])
        world.release("2", spec(rate_limit=RateLimit(requests_per_second=5)))
        world.assign("web-2", release="2")
        world.report("web-2", ports={"http": 30002})
        await world.send()
        world.promote("2", generation=7)
        sequence = await world.send()
        version = await until(versions, lambda version: addresses(version) == ["10.0.0.1:30002"])
        route = version.hosts["web-production.example.net"].routes[0]
        assert (route.route_generation, route.rate_limit) == (7, RateLimit(requests_per_second=5))
        assert addresses(version, "web-production.example.net") == ["10.0.0.1:30002"]

        routed = await records.get(bus, subjects.ROUTED_ENVIRONMENT, ENV)
        assert routed is not None and routed.record is not None
        assert routed.record.model_dump() == {"active_sequence": sequence, "drains": {}, "version": version.number}
        manifest = await records.get(bus, subjects.ROUTE_MANIFEST, ())
        assert manifest is not None and isinstance(manifest.record, RouteManifest)
        assert (manifest.record.covers, manifest.record.digest) == (sequence, version.digest)


async def test_a_version_is_acknowledged_when_the_consumer_is_done_with_it(
    bus: Bus, routes: None, world: Publisher
) -> None:
    demand = {"shop/web/production": Demand(inflight=3, parked=1)}
    async with aclosing(follow_routes(bus, name="edge-1", demand=lambda: demand)) as versions:
        version = await until(versions, lambda version: addresses(version) != [])
        async with asyncio.TaskGroup() as group:
            heard = group.create_task(sample(bus, "edge-1", lambda heard: heard.version == version.number))
            following = asyncio.create_task(anext(versions))  # asking for the next says that this one is applied
        assert heard.result() == ProxySample(version=version.number, digest=version.digest, demand=demand)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_follower_of_an_empty_world_is_told_so(bus: Bus) -> None:
    async with aclosing(follow_routes(bus)) as versions:
        version = await asyncio.wait_for(anext(versions), 60)
        assert (version.number, version.initial, dict(version.hosts)) == (0, True, {})


async def test_a_digest_that_differs_is_reported_and_everything_is_loaded_anew(
    bus: Bus, routes: None, world: Publisher
) -> None:
    async with aclosing(follow_routes(bus, name="edge-2")) as versions:
        good = await until(versions, lambda version: addresses(version) != [])
        manifest = await records.get(bus, subjects.ROUTE_MANIFEST, ())
        assert manifest is not None and isinstance(manifest.record, RouteManifest)
        wrong = manifest.record.model_copy(update={"version": manifest.record.version + 1, "digest": "0" * 64})
        async with asyncio.TaskGroup() as group:
            heard = group.create_task(sample(bus, "edge-2", lambda heard: heard.error != ""))
            following = asyncio.create_task(anext(versions))
            await records.put(bus, subjects.ROUTE_MANIFEST, (), wrong)
        # Until the leader has answered with a manifest of its own, the last good version is served.
        assert heard.result().version == good.number
        # The leader finds that what it has published is not closed, and closes it.
        version = await asyncio.wait_for(following, 60)
        assert version.number == wrong.version + 1
        assert version.digest == good.digest


async def test_a_process_that_starts_while_the_bus_is_away_serves_from_its_cache(
    server: EmbeddedServer, bus: Bus, settings: Settings, routes: None, world: Publisher, tmp_path: Path
) -> None:
    cache = tmp_path / "routes.json"
    async with aclosing(follow_routes(bus, cache=cache)) as versions:
        version = await until(versions, lambda version: addresses(version) != [])
        following = asyncio.create_task(anext(versions))

        async def written() -> bool:
            found = read_cache(cache)
            return found is not None and found.number == version.number

        await eventually(written)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    server.stop()
    async with aclosing(follow_routes(connect(settings, "edge-3"), cache=cache)) as versions:
        cached = await asyncio.wait_for(anext(versions), 60)
        assert (cached.number, cached.hosts, cached.initial) == (version.number, version.hosts, True)
        following = asyncio.create_task(anext(versions))
        server.start(tmp_path / "jetstream", server.port)
        world.report("web-1", ports={"http": 30009})
        await world.send()
        fresh = await asyncio.wait_for(following, 60)
        assert addresses(fresh) == ["10.0.0.1:30009"]
        assert "steer.route.host.com.example.shop" in fresh.changed and not fresh.initial


async def test_the_server_restarts_under_a_follower_and_no_version_is_missed(
    server: EmbeddedServer, bus: Bus, routes: None, world: Publisher, tmp_path: Path
) -> None:
    async with aclosing(follow_routes(bus)) as versions:
        await until(versions, lambda version: addresses(version) != [])
        server.kill()
        server.start(tmp_path / "jetstream", server.port)
        world.report("web-1", ports={"http": 30009})
        await world.send()
        await until(versions, lambda version: addresses(version) == ["10.0.0.1:30009"])


async def stored_snapshot(bus: Bus) -> RouteSnapshot | None:
    head, _ = await snapshot_writer.read_head(bus)
    return head


async def test_the_whole_is_written_when_changes_have_ended(bus: Bus, routes: None, world: Publisher) -> None:
    async def complete() -> RouteSnapshot | None:
        found = await stored_snapshot(bus)
        return found if found is not None and found.http_routes and found.http_routes[0].endpoints else None

    whole = await eventually(complete)
    manifest = await records.get(bus, subjects.ROUTE_MANIFEST, ())
    assert manifest is not None and isinstance(manifest.record, RouteManifest)
    assert (whole.version, whole.digest) == (manifest.record.version, manifest.record.digest)
    assert whole.cert_hosts == ("shop.example.com", "web-production.example.net")
    assert [route.hostname for route in whole.http_routes] == ["shop.example.com", "web-production.example.net"]


async def test_a_large_whole_is_written_in_chunks_and_only_over_the_head_that_was_read(bus: Bus) -> None:
    whole = RouteSnapshot(version=3, digest="d" * 64, cert_hosts=tuple(f"h{n * 7919}.example.com" for n in range(500)))
    messages = pack(whole.version, whole.digest, codec.encode(whole), limit_bytes=1024)
    assert len(messages) > 2
    await snapshot_writer._store(bus, messages, {EXPECTED: "0"})
    head, sequence = await snapshot_writer.read_head(bus)
    assert head is not None and head.chunks == len(messages) - 1
    chunks = [
        (await bus.js.get_last_msg(subjects.SNAPSHOT_STREAM, f"{subjects.ROUTE_SNAPSHOT}.{number}")).data or b""
        for number in range(1, head.chunks + 1)
    ]
    assert unpack(head, chunks) == whole
    with pytest.raises(snapshot_writer.Refused):
        await snapshot_writer._store(bus, messages, {EXPECTED: "0"})
    assert (await snapshot_writer.read_head(bus))[1] == sequence


async def test_a_log_that_takes_no_snapshot_is_a_reason_to_try_again(bus: Bus) -> None:
    await bus.js.delete_stream(subjects.SNAPSHOT_STREAM)
    with pytest.raises(Exception, match="no responders") as refused:
        await snapshot_writer._store(bus, pack(1, "0" * 64, b"{}"), {})
    assert reactions.to_error(refused.value) is Reaction.RETRY


async def test_questions_are_answered(bus: Bus, routes: None, world: Publisher) -> None:
    async def ask(verb: str, body: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = (await records.request(bus, subjects.api("routes", verb), body, 60))["result"]
        return found

    async def routed() -> bool:
        with contextlib.suppress(Unavailable):  # it starts
            return bool((await ask("host", {"hostname": "shop.example.com"}))["routes"])
        return False

    await eventually(routed)
    explained = await ask("explain", {"environment": "shop/web/production"})
    assert explained["replicas"] == [{"node": "n1", "assignment": "web-1", "obstacle": ""}]
    assert (await ask("state", {}))["closed"] is True
    with pytest.raises(RequestRefused, match="environment: write it as project/app/environment"):
        await ask("explain", {"environment": "shop"})
    with pytest.raises(RequestRefused, match="hostname: is missing, or no text"):
        await ask("host", {})
