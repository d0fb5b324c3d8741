"""Faults that are nobody's trap: a full store, a fault in a service, many followers at once, a replaced log."""

import asyncio
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from shared.errors import Conflict, Unavailable
from shared.model.node import NodeControl
from shared.runtime import bus as buses
from shared.runtime import records, streams
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.follower import Follower, Restarted
from shared.runtime.jetstream import api
from shared.runtime.settings import Settings
from shared.service import Plan
from shared.subjects import NODE_CONTROL, STREAM
from tests.integration import toy
from tests.integration.running import Start, ask, counts, eventually, stop_process

KEY = ("shop", "web", "production")


async def limit(bus: Bus, messages: int) -> None:
    config = (await api(bus, f"STREAM.INFO.{STREAM}"))["config"]
    await api(bus, f"STREAM.UPDATE.{STREAM}", {**config, "max_msgs": messages, "discard": "new"})


async def test_a_full_store_stops_the_service_until_there_is_room(bus: Bus, start: Start) -> None:
    one = await start()
    await ask(bus, KEY, 3)
    await eventually(lambda: one.state.counted.get(KEY) == 3)
    await ask(bus, KEY, 6)
    last = (await api(bus, f"STREAM.INFO.{STREAM}"))["state"]["messages"]
    await limit(bus, last)
    with pytest.raises(Unavailable, match="maximum messages exceeded"):
        await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    await limit(bus, -1)
    await eventually(lambda: one.state.counted.get(KEY) == 6)
    assert await counts(bus, KEY) == [1, 2, 3, 4, 5, 6]


async def test_a_fault_in_a_service_drops_the_state_and_loads_it_anew(bus: Bus, start: Start) -> None:
    faults = [ZeroDivisionError("a fault in the service")]

    def faulty(state: toy.State, now: datetime) -> Plan:
        if state.counted.get(KEY, 0) == 2 and faults:
            raise faults.pop()
        return toy.decide(state, now)

    one = await start(replace(toy.service(), decide=faulty))
    await ask(bus, KEY, 5)
    await eventually(lambda: one.state.counted.get(KEY) == 5)
    assert not faults
    assert await counts(bus, KEY) == [1, 2, 3, 4, 5]


async def test_a_log_that_was_replaced_is_loaded_anew(bus: Bus) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    await follower.start()
    await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    assert await follower.next(10)
    await api(bus, f"STREAM.DELETE.{STREAM}")
    await streams.ensure(bus)

    async def restarted() -> bool:
        return isinstance(await follower.next(0.1), Restarted)

    await eventually(restarted)
    await follower.stop()


async def test_a_question_whose_connection_is_lost_does_not_wait_for_an_answer(
    bus: Bus, server: EmbeddedServer
) -> None:
    assert server.process is not None
    await stop_process(server.process.pid)
    asking = asyncio.create_task(api(bus, f"STREAM.INFO.{STREAM}", within=600))
    await eventually(lambda: bus.nc._resp_map)
    server.kill()
    with pytest.raises(Unavailable, match="the connection was lost before the answer came"):
        await asyncio.wait_for(asking, 60)


async def test_many_followers_go_on_after_a_restart_of_the_server(
    settings: Settings, server: EmbeddedServer, tmp_path: Path, bus: Bus
) -> None:
    connections = [await buses.connect(settings, f"c{number}") for number in range(8)]
    followers = [Follower(connections[number % 8], [NODE_CONTROL.subject_filter]) for number in range(200)]
    for follower in followers:
        await follower.start()
    await eventually(lambda: sum(bool(each.begun) for f in followers for each in f._consumers) == 200)
    server.kill()
    server.start(tmp_path / "jetstream", server.port)
    written = await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())

    async def seen(follower: Follower) -> None:
        while follower.position < written:
            assert not isinstance(await follower.next(5), Restarted) or not follower.caught_up

    await asyncio.wait_for(asyncio.gather(*map(seen, followers)), 60)
    await asyncio.gather(*(follower.stop() for follower in followers))
    await asyncio.gather(*(connection.close() for connection in connections))


async def test_named_followers_have_a_consumer_per_filter_whose_name_says_whose_it_is(bus: Bus) -> None:
    follower = Follower(bus, ["steer.node_control.n1", "steer.fleet"], name="agent-n1")
    await follower.start()
    await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    await records.put(bus, NODE_CONTROL, ("n2",), NodeControl())
    got: list[str] = []
    while not (got and follower.caught_up):
        batch = await follower.next(5)
        assert not isinstance(batch, Restarted)
        got += [message.subject for message in batch]
    assert got == ["steer.node_control.n1"]
    names = (await api(bus, f"CONSUMER.NAMES.{STREAM}"))["consumers"]
    assert sorted(name.rpartition("-")[0] for name in names) == ["agent-n1-0", "agent-n1-1"]
    await follower.stop()


async def test_a_write_that_expects_another_last_version_is_refused(bus: Bus) -> None:
    first = await records.put(bus, NODE_CONTROL, ("n1",), NodeControl(), expected=0)
    await records.put(bus, NODE_CONTROL, ("n1",), NodeControl(), expected=first)
    for expected in (0, first):
        with pytest.raises(Conflict):
            await records.put(bus, NODE_CONTROL, ("n1",), NodeControl(), expected=expected)


async def test_a_record_can_be_read_as_it_was(bus: Bus) -> None:
    first = await records.put(bus, NODE_CONTROL, ("n1",), NodeControl(drain=True))
    second = await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    gone = await records.put(bus, NODE_CONTROL, ("n1",), None)
    for at, expected in ((first, NodeControl(drain=True)), (second, NodeControl()), (gone, None)):
        version = await records.get(bus, NODE_CONTROL, ("n1",), at)
        assert version is not None
        assert (version.sequence, version.record) == (at, expected)
    assert await records.get(bus, NODE_CONTROL, ("n1",), first - 1) is None
    assert await records.get(bus, NODE_CONTROL, ("n2",)) is None
    assert await records.load(bus, [NODE_CONTROL.subject_filter]) == []


async def test_a_load_is_complete_while_others_write(bus: Bus) -> None:
    for number in range(2000):
        await bus.nc.publish(f"steer.node_control.n{number}", b"{}")

    async def stored() -> bool:
        return int((await api(bus, f"STREAM.INFO.{STREAM}"))["state"]["messages"]) == 2000

    await eventually(stored)

    async def keep_writing() -> None:
        while True:
            await bus.nc.publish("steer.node_control.busy", b"{}")
            await asyncio.sleep(0)

    writing = asyncio.create_task(keep_writing())
    try:
        for _ in range(5):
            loaded = await records.load(bus, [NODE_CONTROL.subject_filter])
            assert {f"n{number}" for number in range(2000)} <= {version.key[0] for version in loaded}
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
