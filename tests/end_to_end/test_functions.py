"""Functions, whole: `steer up` runs the example's six functions in two pools, and one of them moves under load."""

import asyncio
import http.client
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.function import FunctionAccess
from shared.model.pool import Pool, PoolPlacement
from shared.model.route import FunctionRoute
from shared.runtime import records
from shared.runtime.bus import Bus, connect
from shared.runtime.follow import follow_routes
from shared.runtime.settings import Settings
from tests.end_to_end.running import ROOT, Up, up

FUNCTIONS = ROOT / "examples" / "functions"
CALLS: dict[str, tuple[Any, Any]] = {
    "greet": ({"name": "Ada"}, {"text": "hallo, Ada"}),
    "echo": ([1, None], [1, None]),
    "totals": ({"prices": [1.5, "2.25"]}, {"total": 3.75}),
    "place-order": ({"bread": 2}, {"placed": {"bread": 2}, "by": "place-order"}),
    "cancel-order": (None, None),
}
"""Every function but the broken one: what it gets and what it gives."""

Value = TypeVar("Value")


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Up]:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    async with up(tmp_path / "data", ROOT / "examples") as plane:
        yield plane


@pytest.fixture
async def bus(plane: Up) -> AsyncIterator[Bus]:
    bus = await connect(Settings(nats_url=plane.url), "test-functions")
    yield bus
    await bus.close()


async def until(look: Callable[[], Awaitable[Value]], what: str, within: float = 60) -> Value:
    """Look until it is true, and give back what it was."""
    async with asyncio.timeout(within):
        while not (found := await look()):  # noqa: ASYNC110 - another process: nothing to await
            await asyncio.sleep(0.05)
    assert found, what
    return found


class Proxy:
    """What a proxy does: follows the routes, says so, and calls the workers that they list."""

    def __init__(self, bus: Bus) -> None:
        self.routes: dict[str, FunctionRoute] = {}
        self.answered: Counter[str] = Counter()
        self.failed: list[str] = []
        self._bus = bus
        self._loaded = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        async for version in follow_routes(self._bus, name="test-proxy"):
            self.routes = {route.function: route for route in version.functions.values()}
            self._loaded.set()

    def start(self, *functions: str) -> None:
        self._tasks = [asyncio.create_task(self.follow())]
        self._tasks += [asyncio.create_task(self._call_for_ever(name)) for name in functions]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call_for_ever(self, name: str) -> None:
        await self._loaded.wait()
        while True:
            try:
                address = self.routes[name].endpoints[0].address
                answer = await asyncio.to_thread(post, address, name, CALLS[name][0])
                assert answer == CALLS[name][1], answer
                self.answered[name] += 1
            except Exception as error:
                self.failed.append(f"{name}: {error!r}")
            await asyncio.sleep(0.02)


def post(address: str, name: str, value: Any) -> Any:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", f"/function/{name}", json.dumps(value))
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, f"{answer.status} {text!r}"
        return json.loads(text) if text else None
    finally:
        connection.close()


async def pools(bus: Bus) -> dict[tuple[str, ...], str]:
    """The members of each pool, with its access."""
    found = await records.load(bus, [subjects.POOL.subject_filter])
    return {each.record.members: each.key[3] for each in found if isinstance(each.record, Pool)}


async def ready(bus: Bus) -> set[str]:
    """The functions whose route leads somewhere."""
    found = await records.load(bus, [subjects.ROUTE_FUNCTION.subject_filter])
    return {each.key[1] for each in found if isinstance(each.record, FunctionRoute) and each.record.endpoints}


async def running(bus: Bus) -> list[Assignment]:
    found = await records.load(bus, [subjects.ASSIGNMENT.subject_filter])
    return [each.record for each in found if isinstance(each.record, Assignment) and each.record.desired == "run"]


async def test_six_functions_run_in_two_pools_one_crashes_and_one_moves_without_a_failed_call(
    plane: Up, bus: Bus
) -> None:
    code, _, errors = await plane.steer("apply", "-f", str(FUNCTIONS))
    assert code == 0, errors

    async def all_ready() -> bool:
        return await ready(bus) == set(CALLS)

    await until(all_ready, "every function but the broken one is ready")
    before = await pools(bus)
    assert set(before) == {("echo", "greet", "totals"), ("broken", "cancel-order", "place-order")}
    assert set(before.values()) == {each.workload.key.rpartition("/")[2] for each in await running(bus)}

    await check_the_commands(plane)
    instances = await records.load(bus, [subjects.INSTANCE.subject_filter])
    said = {
        name: state
        for each in instances
        if isinstance(each.record, Instance)
        for name, state in each.record.members.items()
    }
    assert said == dict.fromkeys(CALLS, "ready") | {"broken": "failed"}

    proxy = Proxy(bus)
    proxy.start(*CALLS)
    try:
        await moves(bus, proxy)
    finally:
        await proxy.stop()
    assert proxy.failed == []
    assert set(proxy.answered) == set(CALLS)


async def check_the_commands(plane: Up) -> None:
    code, out, errors = await plane.steer("call", "shop/greet", '{"name": "Ada"}')
    assert (code, json.loads(out)) == (0, {"text": "hallo, Ada"}), errors
    code, out, errors = await plane.steer("call", "shop/broken")
    assert code == 1 and "no worker is ready" in errors
    code, out, errors = await plane.steer("get", "pools")
    assert code == 0 and "3 of 16 members: echo greet totals" in out, errors
    code, out, errors = await plane.steer("explain", "function", "shop/broken")
    assert code == 0 and "broken failed" in out and "place-order ready" in out, errors


async def moves(bus: Bus, proxy: Proxy) -> None:
    """The grants of `greet` change: it goes to a pool of its own kind, and everybody is called all the while."""

    async def called() -> bool:
        return all(proxy.answered[name] >= 3 for name in CALLS)

    await until(called, "calls to every function")
    await records.put(bus, subjects.ACCESS, ("shop", "greet"), FunctionAccess(grants=("group/readers",)))

    async def moved() -> bool:
        version = await records.get(bus, subjects.PLACEMENT, ("shop", "greet"))
        placement = version.record if version is not None else None
        there = isinstance(placement, PoolPlacement) and not placement.moving_from
        alone = ("greet",) in await pools(bus) and ("echo", "totals") in await pools(bus)
        return there and alone and len(proxy.routes["greet"].endpoints) == 1

    await until(moved, "greet in a pool of its own")
    assert proxy.routes["greet"].pool.rpartition("/")[2] != proxy.routes["echo"].pool.rpartition("/")[2]
    counts = dict(proxy.answered)

    async def replaced() -> bool:
        """The worker that still has greet is drained, and the calls go on beside and after it."""
        mains = [each for each in await running(bus) if "totals" in each.run.env["STEER_MEMBERS"]]
        return len(mains) == 1 and all(proxy.answered[name] >= counts[name] + 5 for name in CALLS)

    await until(replaced, "the old worker is gone, and everybody is called", within=100)
