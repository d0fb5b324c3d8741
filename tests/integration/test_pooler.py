"""The pooler on the real server: it places, restores what is bad, answers, and its successor writes nothing anew."""

import asyncio
import http.server
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.pooler.service import service
from shared import subjects
from shared.errors import RequestRefused
from shared.model.function import Function, FunctionAccess, Pooling
from shared.model.pool import Pool, PoolingPolicy, PoolPlacement, Runtime
from shared.model.route import Endpoint, FunctionRoute
from shared.model.run import PortSpec, RunSpec
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from tests.integration.running import eventually
from tests.integration.steer_command import Steer

HOST = Runtime(run=RunSpec(image="exec:host", command=("host",), ports=(PortSpec(name="http", container_port=80),)))


@asynccontextmanager
async def pooler(settings: Settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(serve(service(), settings, stop=stop))
    yield
    stop.set()
    await asyncio.wait_for(running, 60)


def function(worker: str | None = "main") -> Function:
    return Function(runtime="python", handler="main.handle", artifact="a", pooling=Pooling(worker=worker))


async def publish(bus: Bus, *names: str) -> None:
    await records.put(bus, subjects.RUNTIME, ("python",), HOST)
    await records.put(bus, subjects.POOLING_POLICY, ("shop",), PoolingPolicy(limit=2))
    for name in names:
        await records.put(bus, subjects.FUNCTION, ("shop", name), function())


async def placement(bus: Bus, name: str) -> PoolPlacement | None:
    version = await records.get(bus, subjects.PLACEMENT, ("shop", name))
    record = version.record if version is not None else None
    assert record is None or isinstance(record, PoolPlacement)
    return record


async def placed(bus: Bus, name: str, rejected: bool = False) -> PoolPlacement:
    async def look() -> PoolPlacement | None:
        found = await placement(bus, name)
        return found if found is not None and found.rejected == rejected else None

    found = await eventually(look)
    assert isinstance(found, PoolPlacement)
    return found


async def members(bus: Bus) -> list[tuple[str, ...]]:
    found = await records.load(bus, [subjects.POOL.subject_filter])
    return sorted(each.record.members for each in found if isinstance(each.record, Pool))


async def own(bus: Bus) -> int:
    """The sequence of the last record of the pooler but its terms."""
    kinds = (subjects.PLACEMENT, subjects.POOL, subjects.DECISION, subjects.NOTICE)
    found = await records.load(bus, [kind.subject_filter for kind in kinds])
    return max(each.sequence for each in found)


async def test_functions_are_placed_and_who_is_rejected_is_admitted_when_there_is_room(
    bus: Bus, settings: Settings
) -> None:
    async with pooler(settings):
        await publish(bus, "a", "b", "c")
        rejected = await placed(bus, "c", rejected=True)
        assert "is full (2)" in rejected.reason
        assert await members(bus) == [("a", "b")]
        await records.put(bus, subjects.FUNCTION, ("shop", "a"), None)
        await placed(bus, "c")
        assert await members(bus) == [("b", "c")]


async def test_a_successor_finds_everything_decided(bus: Bus, settings: Settings) -> None:
    async with pooler(settings):
        await publish(bus, "a", "b", "c")
        await records.put(bus, subjects.ACCESS, ("shop", "b"), FunctionAccess(grants=("group/x",)))
        await eventually(lambda: _grouped(bus))
    before = await own(bus)
    async with pooler(settings):
        await records.put(bus, subjects.FUNCTION, ("shop", "z"), function(worker=None))
        await placed(bus, "z")
    versions = await records.load(bus, [subjects.PLACEMENT.subject_filter, subjects.POOL.subject_filter])
    assert {each.key[1] for each in versions if each.sequence > before and each.kind is subjects.PLACEMENT} == {"z"}


async def _grouped(bus: Bus) -> bool:
    found = await placement(bus, "b")
    return found is not None and len(await members(bus)) == 2 and await placement(bus, "c") is not None


async def test_a_bad_function_is_put_aside_and_the_good_version_rules(bus: Bus, settings: Settings) -> None:
    async with pooler(settings):
        await publish(bus, "a")
        before = await placed(bus, "a")
        subject = subjects.FUNCTION.subject("shop", "a")
        bad = await bus.js.publish(subject, b'{"runtime":"Python","handler":"9"}')

        async def restored() -> bool:
            message = await records.last_message(bus, subject)
            return message is not None and message.sequence > bad.seq

        await eventually(restored)
        version = await records.get(bus, subjects.FUNCTION, ("shop", "a"))
        assert version is not None and version.record == function()
        assert await placement(bus, "a") == before


async def test_it_answers_how_full_a_pool_is_and_why_a_function_waits(bus: Bus, settings: Settings) -> None:
    async with pooler(settings):
        await publish(bus, "a", "b", "c")
        await placed(bus, "c", rejected=True)
        seen = await own(bus)

        async def ask(verb: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = await records.request(bus, subjects.api("pooler", verb), body | {"at_least_sequence": seen}, 60)
            found: dict[str, Any] = answer["result"]
            return found

        (pool,) = (await ask("state", {"namespace": "shop"}))["pools"]
        assert (list(pool["members"]), pool["limit"], pool["waiting"]) == (["a", "b"], 2, ["c"])
        told = await ask("explain", {"function": "shop/c"})
        assert told["decision"]["reasons"]["held_by"] == ["a", "b"]
        with pytest.raises(RequestRefused, match="does not exist"):
            await ask("explain", {"function": "shop/nobody"})


@pytest.fixture
def host() -> Iterator[str]:
    """A worker that answers with what it got, and 500 for `bad`; its address."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(500 if self.path.endswith("/bad") else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"path": self.path, "got": body.decode()}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def route(bus: Bus, name: str, *addresses: str) -> None:
    endpoints = tuple(Endpoint(assignment=f"p-{at}", node="n1", address=at) for at in addresses)
    record = FunctionRoute(namespace="shop", function=name, pool="python/main/x", endpoints=endpoints)
    await records.put(bus, subjects.ROUTE_FUNCTION, ("shop", name), record)


async def test_the_command_calls_a_function_on_the_first_worker_that_answers(
    bus: Bus, settings: Settings, tmp_path: Path, host: str
) -> None:
    steer = Steer(settings.nats_url, tmp_path)
    await publish(bus, "a", "bad", "idle")
    await route(bus, "a", "127.0.0.1:1", host)
    await route(bus, "bad", host)
    await route(bus, "idle")
    called = await steer("call", "shop/a", '{"n": 1}')
    assert (called.code, called.json) == (0, {"path": "/function/a", "got": '{"n": 1}'})
    assert (await steer("call", "shop/a", "-", stdin="[2]")).json["got"] == "[2]"
    told = (await steer("call", "shop/a", "7", "-o", "json")).json
    assert told == {"function": "shop/a", "status": 200, "answer": {"path": "/function/a", "got": "7"}}
    bad = await steer("call", "shop/bad")
    assert bad.code == 1 and "answered 500" in bad.err
    idle = await steer("call", "shop/idle")
    assert idle.code == 1 and "no worker is ready" in idle.err
    assert (await steer("call", "shop/a", "{")).code == 2
    assert (await steer("call", "shop/nobody")).code == 1
    assert (await steer("call", "shop")).code == 2


async def test_the_command_shows_pools_and_explains_functions(bus: Bus, settings: Settings, tmp_path: Path) -> None:
    steer = Steer(settings.nats_url, tmp_path)
    async with pooler(settings):
        await publish(bus, "a", "b", "c")
        await placed(bus, "c", rejected=True)
    shown = await steer("get", "pools")
    assert shown.code == 0 and "2 of 2 members: a b, 1 waiting" in shown.out
    assert "rejected: pool python/main/" in (await steer("get", "placement")).out
    told = await steer("explain", "function", "shop/c")
    assert told.code == 0 and "held_by: a, b" in told.out and "cure:" in told.out
    assert "2 of 2 members" in (await steer("explain", "function", "shop/a")).out
    assert (await steer("explain", "function", "shop/c", "-o", "json")).json["placement"]["rejected"] is True
    assert (await steer("explain", "function", "shop/nobody")).code == 1
    manifest = "kind: Function\nname: shop/d\nruntime: python\nhandler: m.h\nartifact: a\nscaling: {min_replicas: 2}\n"
    applied = await steer("apply", "-f", "-", stdin=manifest)
    assert applied.err == "Function shop/d: scaling.min_replicas is 2, and a pool has one worker\n"
    assert "min_replicas is 2" in (await steer("explain", "function", "shop/d")).out
    assert len((await steer("explain", "function", "shop/d", "-o", "json")).json["unmet"]) == 1
    assert (await steer("explain", "pool", "shop/c")).code == 2
