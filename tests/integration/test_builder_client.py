"""The pool as an object: a client of the builder on a real server, in this process."""

import asyncio

import orjson
import pytest
from nats.aio.msg import Msg

from services.builder.client import LeaseLost, NoUnleasedWorkers, Pool, PoolClosed
from services.builder.service import service
from shared import subjects
from shared.errors import RequestRefused
from shared.model.build import BuildPool
from shared.model.build_worker import WorkerLease, WorkerScale
from shared.runtime import records
from shared.runtime.bus import Bus
from tests.integration.buildkitd import POOL, ready_worker
from tests.integration.running import Running, Start, eventually


@pytest.fixture
async def builder(start: Start, bus: Bus) -> Running:
    running = await start(service())
    await records.put(bus, subjects.BUILD_POOL, (POOL,), BuildPool(max_workers=3, lease_ttl_seconds=10))
    await eventually(lambda: running.leading)
    return running


async def holder(bus: Bus) -> str:
    version = await records.get(bus, subjects.WORKER_LEASE, (POOL, "w-0"))
    return version.record.owner if version is not None and isinstance(version.record, WorkerLease) else ""


async def test_a_client_has_a_worker_for_the_time_of_a_block(builder: Running, bus: Bus) -> None:
    pool = Pool(bus, POOL)
    with pytest.raises(NoUnleasedWorkers):
        await pool.get("a")
    await ready_worker(bus)
    async with pool.worker("a") as mine:
        assert mine.address == "tcp://w-0:1234" and await holder(bus) == "a"
        await _renewed(bus)
    assert await holder(bus) == ""


async def _renewed(bus: Bus) -> None:
    first = await records.get(bus, subjects.WORKER_LEASE, (POOL, "w-0"))

    async def again() -> bool:
        last = await records.get(bus, subjects.WORKER_LEASE, (POOL, "w-0"))
        return last is not None and first is not None and last.sequence > first.sequence

    await eventually(again)


async def test_a_client_that_waits_gets_the_worker_that_comes_up(builder: Running, bus: Bus) -> None:
    pool = Pool(bus, POOL)
    waiting = asyncio.create_task(pool.get("a", wait_seconds=60))

    async def scaled() -> bool:
        version = await records.get(bus, subjects.WORKER_SCALE, (POOL,))
        return version is not None and isinstance(version.record, WorkerScale) and version.record.replicas == 1

    await eventually(scaled)
    await ready_worker(bus)
    mine = await asyncio.wait_for(waiting, 60)
    with pytest.raises(RequestRefused, match="tcp://other:1 is not allocated"):
        await pool.release("tcp://other:1")
    await pool.release(mine.address)
    with pytest.raises(RequestRefused, match="not allocated"):
        await pool.release(mine.address)
    assert await holder(bus) == ""


async def test_a_client_that_goes_away_leaves_the_queue(builder: Running, bus: Bus) -> None:
    waiting = asyncio.create_task(Pool(bus, POOL).get("a", wait_seconds=60))
    await eventually(lambda: len(builder.instance.world.state.indexes.line(POOL)) == 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert len(builder.instance.world.state.indexes.line(POOL)) == 0


async def test_a_closed_pool_gives_everything_back(builder: Running, bus: Bus) -> None:
    pool = Pool(bus, POOL)
    await ready_worker(bus)
    await pool.get("a", wait_seconds=60)
    waiting = asyncio.create_task(pool.get("b", wait_seconds=60))
    await eventually(lambda: len(builder.instance.world.state.indexes.line(POOL)) == 1)
    await pool.close()
    with pytest.raises(PoolClosed):
        await waiting
    with pytest.raises(PoolClosed):
        await pool.get("c")
    assert await holder(bus) == ""


async def test_a_client_learns_that_its_worker_is_gone(builder: Running, bus: Bus) -> None:
    pool = Pool(bus, POOL)
    await ready_worker(bus)
    with pytest.raises(LeaseLost, match="default/w-0"):
        async with pool.worker("a", wait_seconds=60) as mine:
            await records.put(bus, subjects.BUILD_WORKER, (POOL, "w-0"), None)
            await asyncio.wait_for(mine.lost.wait(), 60)


async def test_a_client_does_not_notice_a_change_of_the_leader(builder: Running, start: Start, bus: Bus) -> None:
    pool = Pool(bus, POOL)
    await ready_worker(bus)
    mine = await pool.get("a", wait_seconds=60)
    waiting = asyncio.create_task(pool.get("b", wait_seconds=60))
    await eventually(lambda: len(builder.instance.world.state.indexes.line(POOL)) == 1)
    second = await start(service())
    await builder.stop()
    await eventually(lambda: second.leading)
    await pool.release(mine.address)
    theirs = await asyncio.wait_for(waiting, 60)
    assert theirs.token != mine.token and await holder(bus) == "b"
    await pool.close()


async def test_a_worker_is_given_back_in_the_moment_in_which_its_lease_is_renewed(bus: Bus) -> None:
    """The renewal's answer is there, but not yet read, when the worker is given back. The builder is this test."""
    pool, given_back = Pool(bus, POOL), asyncio.Event()
    lease = {"worker": "w-0", "address": "tcp://w-0:1234", "token": "t", "ttl_seconds": 0.03}

    async def answer(message: Msg) -> None:
        await bus.nc.publish(message.reply, orjson.dumps({"result": lease}))
        if message.subject == subjects.api("builder", "renew"):
            await bus.nc.publish("renewed", b"")

    async def give_back(_: Msg) -> None:
        await pool.release("tcp://w-0:1234")
        given_back.set()

    await bus.nc.subscribe(subjects.api("builder", "*"), cb=answer)
    await bus.nc.subscribe("renewed", cb=give_back)
    await pool.get("a")
    await asyncio.wait_for(given_back.wait(), 60)
