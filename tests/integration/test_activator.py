"""The activator on the real server, in front of real HTTP servers."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web

from services.activator.run import Activator, Config
from services.routes.service import service
from shared import codec, subjects
from shared.model.activation import Activation
from shared.model.live import Demand, ProxySample
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from tests.integration.running import eventually
from tests.routing import ENV, World, spec

HOST = "shop.example.com"
NAME = "/".join(ENV)


@dataclass
class Here:
    """A running activator, and a world whose records go to the log."""

    bus: Bus
    activator: Activator
    world: World
    session: aiohttp.ClientSession
    stop: asyncio.Event
    sent: int = 0

    async def send(self) -> None:
        for version in self.world.versions[self.sent :]:
            await records.put(self.bus, version.kind, version.key, version.record)
        self.sent = len(self.world.versions)

    async def come_up(self, port: int, assignment: str = "web-1") -> None:
        self.world.assign(assignment)
        self.world.report(assignment, ports={"http": port})
        await self.send()

    def ask(self, method: str = "GET", path: str = "/", **options: object) -> "asyncio.Task[tuple[int, str]]":
        async def asking() -> tuple[int, str]:
            url = f"http://127.0.0.1:{self.activator.port}{path}"
            async with self.session.request(method, url, headers={"Host": HOST}, **options) as answer:  # type: ignore[arg-type]
                return answer.status, await answer.text()

        return asyncio.create_task(asking())

    async def activations(self) -> list[Activation]:
        history = await records.history(self.bus, subjects.ACTIVATION.subject("activator-1", *ENV))
        found = [records.version_of(message).record for message in history]
        return [record for record in found if isinstance(record, Activation)]

    def parked(self) -> int:
        return self.activator.gate.parked(NAME)

    async def samples(self, holds: Callable[[Demand], bool]) -> Demand:
        """The first demand on the wire that fits."""
        subscription = await self.bus.nc.subscribe(subjects.live_proxy("activator-1"))
        try:
            async with asyncio.timeout(60):
                async for message in subscription.messages:
                    sample = codec.validate(ProxySample, message.subject, message.data)
                    if holds(sample.demand.get(NAME, Demand())):
                        return sample.demand[NAME]
            raise AssertionError("the activator is heard no more")
        finally:
            await subscription.unsubscribe()


@pytest.fixture
async def start(bus: Bus, settings: Settings) -> AsyncIterator[Callable[..., Awaitable[Here]]]:
    """Start routes and an activator before one environment, with no replica yet."""
    async with AsyncExitStack() as stack:

        async def start(hold_seconds: float = 30, **policy: object) -> Here:
            stop, world = asyncio.Event(), World("")
            routes = asyncio.create_task(serve(service(""), settings, stop=stop))
            activator = Activator(Config("activator-1", "127.0.0.1:0", hold_seconds=hold_seconds, stop_seconds=5))
            running = asyncio.create_task(activator.run(bus, stop))
            session = await stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))

            async def end() -> None:
                stop.set()
                await asyncio.wait_for(asyncio.gather(routes, running), 60)

            stack.push_async_callback(end)
            here = Here(bus, activator, world, session, stop)
            world.environment()
            world.node("n1", "127.0.0.1")
            world.release("1", spec(**policy))  # type: ignore[arg-type]
            world.promote("1")
            world.domain_of("main", HOST)
            await here.send()
            await asyncio.wait_for(activator.serving.wait(), 60)
            await eventually(lambda: activator.version is not None and HOST in activator.version.hosts)
            return here

        yield start


@asynccontextmanager
async def replica(handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncIterator[int]:
    runner = web.ServerRunner(web.Server(handler, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="hello")


Start = Callable[..., Awaitable[Here]]


async def test_scenario_18_the_first_request_to_what_is_cold_wakes_it_and_is_answered(start: Start) -> None:
    here = await start(scale_to_zero=True)
    asked = [here.ask() for _ in range(20)]
    await eventually(lambda: here.parked() == 20)
    activations = await eventually(here.activations)
    assert len(activations) == 1, "one for the environment, not one for each request"
    assert not any(task.done() for task in asked)
    async with replica(hello) as port:
        await here.come_up(port)
        assert set(await asyncio.gather(*asked)) == {(200, "hello")}
        assert here.parked() == 0
    assert len(await here.activations()) == 1


async def test_what_is_cold_again_is_woken_again_at_once(start: Start) -> None:
    here = await start(scale_to_zero=True)
    asked = here.ask()
    async with replica(hello) as port:
        await here.come_up(port)
        assert await asked == (200, "hello")
    here.world.report("web-1", state="stopped")
    await here.send()
    await eventually(lambda: here.activator.gate.find(HOST, "/").cold)  # type: ignore[union-attr]
    again = here.ask()
    await eventually(lambda: here.parked() == 1)

    async def twice() -> bool:
        return len(await here.activations()) == 2

    await eventually(twice)
    again.cancel()


async def test_what_waits_is_reported_at_once(start: Start) -> None:
    here = await start(scale_to_zero=True)
    heard = asyncio.create_task(here.samples(lambda demand: demand.parked == 3))
    asked = [here.ask() for _ in range(3)]
    assert (await heard).inflight == 0
    async with replica(hello) as port:
        await here.come_up(port)
        await asyncio.gather(*asked)


async def test_no_more_than_max_concurrency_at_a_time_and_the_others_wait_their_turn(start: Start) -> None:
    here = await start(max_concurrency=2)
    most, now, go_on = 0, 0, asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await go_on.wait()
        now -= 1
        return web.Response(text="done")

    async with replica(slow) as port:
        await here.come_up(port)
        await eventually(lambda: here.activator.gate.find(HOST, "/").endpoints)  # type: ignore[union-attr]
        asked = [here.ask() for _ in range(7)]
        await eventually(lambda: here.parked() == 5 and now == 2)
        go_on.set()
        assert set(await asyncio.gather(*asked)) == {(200, "done")}
        assert most == 2 and await here.activations() == []


async def test_who_has_waited_too_long_gets_a_504(start: Start) -> None:
    here = await start(hold_seconds=0.2, scale_to_zero=True)
    assert (await here.ask())[0] == 504
    assert here.parked() == 0


async def test_one_more_than_a_hundred_is_told_to_come_back(start: Start) -> None:
    here = await start(scale_to_zero=True)
    here.session.connector._limit = 0  # type: ignore[union-attr]  # the client's own bound is a hundred, too
    asked = [here.ask() for _ in range(100)]
    await eventually(lambda: here.parked() == 100)
    url = f"http://127.0.0.1:{here.activator.port}/"
    async with here.session.get(url, headers={"Host": HOST}) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert (await here.samples(lambda demand: demand.parked >= 100)).parked in {100, 101}
    async with replica(hello) as port:
        await here.come_up(port)
        assert set(await asyncio.gather(*asked)) == {(200, "hello")}


async def test_what_announces_more_than_can_wait_is_turned_away(start: Start) -> None:
    here = await start(scale_to_zero=True)
    url = f"http://127.0.0.1:{here.activator.port}/"
    headers = {"Host": HOST, "Content-Length": str(10 * 1024 * 1024 + 1), "Expect": "100-continue"}
    async with here.session.post(url, headers=headers) as answer:
        assert answer.status == 503 and "too large" in await answer.text()


async def test_a_client_that_goes_away_waits_no_more(start: Start) -> None:
    here = await start(scale_to_zero=True)
    asked = here.ask()
    await eventually(lambda: here.parked() == 1)
    asked.cancel()
    await eventually(lambda: here.parked() == 0)


async def test_an_endpoint_that_cannot_be_reached_is_passed_over(start: Start) -> None:
    here = await start(max_concurrency=50)
    async with replica(hello) as gone:
        pass
    async with replica(hello) as port:
        await here.come_up(gone, "web-0")
        await here.come_up(port, "web-1")
        await eventually(lambda: len(here.activator.gate.find(HOST, "/").endpoints) == 2)  # type: ignore[union-attr]
        assert {await here.ask() for _ in range(20)} == {(200, "hello")}


async def test_bodies_and_heads_go_through_as_they_are(start: Start) -> None:
    here = await start(max_concurrency=5)

    async def mirror(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        shown = f"{request.method} {request.raw_path} {len(body)} {request.headers['X-Forwarded-Host']}"
        return web.Response(status=201, text=shown, headers={"X-Kept": "yes", "Connection": "X-Gone", "X-Gone": "1"})

    async with replica(mirror) as port:
        await here.come_up(port)
        await eventually(lambda: here.activator.gate.find(HOST, "/").endpoints)  # type: ignore[union-attr]
        url = f"http://127.0.0.1:{here.activator.port}/a%2Fb?x=%20"
        size = 3 * 1024 * 1024
        async with here.session.post(url, headers={"Host": HOST}, data=io.BytesIO(b"x" * size)) as answer:
            assert (answer.status, answer.headers["X-Kept"]) == (201, "yes") and "X-Gone" not in answer.headers
            assert await answer.text() == f"POST /a%2Fb?x=%20 {size} {HOST}"


async def test_a_host_that_is_not_routed_is_404_and_one_without_replicas_that_is_not_cold_502(start: Start) -> None:
    here = await start(max_concurrency=5)
    url = f"http://127.0.0.1:{here.activator.port}/"
    async with here.session.get(url, headers={"Host": "other.example.com"}) as answer:
        assert answer.status == 404
    assert (await here.ask())[0] == 502


async def test_a_stop_lets_what_is_under_way_come_to_its_end(start: Start) -> None:
    here = await start(max_concurrency=5)
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        under_way.set()
        await go_on.wait()
        return web.Response(text="done")

    async with replica(slow) as port:
        await here.come_up(port)
        await eventually(lambda: here.activator.gate.find(HOST, "/").endpoints)  # type: ignore[union-attr]
        asked = here.ask()
        await under_way.wait()
        here.stop.set()
        go_on.set()
        assert await asked == (200, "done")
