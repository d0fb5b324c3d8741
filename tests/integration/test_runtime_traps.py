"""Each trap of NATS that would sink the design, sprung against the real server.

The numbers are those of the list that the design was drawn from; the name says what must not happen.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from nats.aio.transport import TcpTransport

from shared.errors import InvalidRecord, Unavailable
from shared.model.node import NodeControl
from shared.runtime import bus as buses
from shared.runtime import records, streams
from shared.runtime.answers import Unknown
from shared.runtime.bus import Bus
from shared.runtime.commit import Committer
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.encode import outgoing
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.jetstream import api
from shared.runtime.lease import STREAM_NAME, Lease
from shared.runtime.settings import Settings
from shared.runtime.tasks import end
from shared.runtime.term import open_term
from shared.service import Change
from shared.subjects import LEASE_BUCKET, NODE_CONTROL, STREAM
from tests.integration.running import Start, ask, eventually, loaded, received, stop_process

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("shop", "web", "production")
LEASE_SUBJECT = f"$KV.{LEASE_BUCKET}.scheduler"


@contextlib.asynccontextmanager
async def tried(lease: Lease) -> AsyncIterator[asyncio.Task[None]]:
    """The lease is tried for and kept inside the block."""
    task = asyncio.create_task(lease.run())
    try:
        yield task
    finally:
        await end(task)


async def last_of_the_key(bus: Bus) -> dict[str, str]:
    answer = await api(bus, f"STREAM.MSG.GET.{STREAM_NAME}", {"last_by_subj": LEASE_SUBJECT})
    found: dict[str, str] = answer["message"]
    return found


async def test_trap_1_a_lease_that_was_renewed_still_expires_after_a_crash(bus: Bus) -> None:
    lease = Lease(bus, "scheduler", "one", 1)
    async with tried(lease):
        await eventually(lambda: lease.held)
        first = (await last_of_the_key(bus))["seq"]

        async def renewed_twice() -> bool:
            return int((await last_of_the_key(bus))["seq"]) >= int(first) + 2

        await eventually(renewed_twice)
    # Nobody renews any more, and nobody has given it back.

    async def expired() -> bool:
        return not (await last_of_the_key(bus)).get("data")

    await eventually(expired)
    assert not lease.held


async def test_trap_1_a_renewal_that_landed_though_its_answer_was_late_does_not_cost_the_lease(bus: Bus) -> None:
    lost: list[bool] = []
    lease = Lease(bus, "scheduler", "one", 1, lambda: lost.append(not lease.held))
    async with tried(lease):
        await eventually(lambda: lease.held)
        unheard = await bus.request(LEASE_SUBJECT, lease._body(), {"Nats-TTL": "1"}, within=60)
        landed = int(orjson.loads(unheard.data)["seq"])

        async def renewed() -> bool:
            return int((await last_of_the_key(bus))["seq"]) >= landed + 2

        await eventually(renewed)
        assert lease.held
        assert lost == [False]
        await bus.request(LEASE_SUBJECT, b'{"holder": "two"}', {"Nats-TTL": "60"}, within=60)
        await eventually(lambda: lost == [False, True])


async def test_trap_2_an_expired_lease_is_taken_over_from_its_marker(bus: Bus) -> None:
    one, two = Lease(bus, "scheduler", "one", 1), Lease(bus, "scheduler", "two", 1)
    async with tried(one):
        await eventually(lambda: one.held)
    async with tried(two):
        await eventually(lambda: two.held)
        assert two.epoch > one.epoch


async def test_trap_2_a_lease_whose_marker_is_gone_as_well_is_taken(bus: Bus) -> None:
    one, two = Lease(bus, "scheduler", "one", 1), Lease(bus, "scheduler", "two", 1)
    async with tried(one):
        await eventually(lambda: one.held)
    await api(bus, f"STREAM.PURGE.{STREAM_NAME}", {})
    async with tried(two):
        await eventually(lambda: two.held)


async def test_trap_3_a_follower_is_not_deaf_after_a_restart_of_the_server(
    bus: Bus, server: EmbeddedServer, tmp_path: Path
) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    await follower.start()
    await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    await received(follower, 1)
    server.kill()
    server.start(tmp_path / "jetstream", server.port)
    await records.put(bus, NODE_CONTROL, ("n2",), NodeControl())
    (message,) = await received(follower, 1)
    assert message.subject == "steer.node_control.n2"
    await follower.stop()


async def test_trap_3_a_follower_whose_consumer_was_deleted_makes_another(bus: Bus) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    await follower.start()
    await loaded(follower)
    for name in (await api(bus, f"CONSUMER.NAMES.{STREAM}"))["consumers"]:
        await api(bus, f"CONSUMER.DELETE.{STREAM}.{name}")
    await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    (message,) = await received(follower, 1)
    assert message.subject == "steer.node_control.n1"
    await follower.stop()


async def test_trap_4_a_message_that_is_too_large_with_its_headers_is_refused_before_it_costs_the_connection(
    bus: Bus,
) -> None:
    body = b"x" * (bus.nc.max_payload - 100)
    with pytest.raises(InvalidRecord, match=r"bytes and \d+ of headers"):
        await bus.publish("steer.node_control.n1", body, {"Steer-Cause": "1" * 200})
    with pytest.raises(InvalidRecord, match=r"bytes and \d+ of headers"):
        await bus.request("steer.node_control.n1", body, {"Steer-Cause": "1" * 200})
    committer = Committer(bus.settings, "scheduler", "test")
    committer.term = 1
    message = outgoing(Change(NODE_CONTROL, ("n1",), NodeControl()))._replace(body=body)
    with pytest.raises(InvalidRecord, match=r"bytes and \d+ of headers"):
        await committer.commit([message])
    await committer.close()
    assert await records.put(bus, NODE_CONTROL, ("n1",), NodeControl()) == 1


async def test_trap_4_an_instance_ends_when_its_connection_is_gone_for_good(start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    await one.bus.nc.close()
    with pytest.raises(Unavailable, match="gone for good"):
        await asyncio.wait_for(one.task, 60)


async def test_trap_4_an_instance_whose_connection_the_server_cuts_decides_again_or_ends(
    start: Start, bus: Bus
) -> None:
    """Where the client reads why before it finds the connection cut, it closes for good; else it comes back."""
    one = await start()
    await eventually(lambda: one.leading)
    await one.bus.nc.publish("steer.node_control.n1", b"x" * one.bus.nc.max_payload, headers={"Steer-Cause": "1"})
    await eventually(lambda: one.bus.closed.is_set() or one.bus.reconnects)
    await ask(bus, KEY, 1)
    await eventually(lambda: one.task.done() or one.state.counted.get(KEY) == 1)
    if one.task.done():
        with pytest.raises(Unavailable, match="gone for good"):
            one.task.result()


async def test_trap_4_a_client_whose_connection_is_cut_while_it_closes_says_that_it_is_closed(bus: Bus) -> None:
    bus.send(b"PING\r\n", 1)  # what is left to be sent cannot be sent any more
    transport = bus.nc._transport
    assert isinstance(transport, TcpTransport) and transport._io_writer is not None
    transport._io_writer.transport.abort()
    with contextlib.suppress(OSError):
        await bus.nc.close()
    assert bus.closed.is_set()


async def test_a_reader_with_much_to_read_lets_others_come_to_their_turn(bus: Bus) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    for sequence in range(1, 2001):
        follower.put(Message("steer.node_control.n1", sequence, EPOCH, None, b""))
    turns: list[int] = []
    read = 0
    while read < 2000:
        asyncio.get_running_loop().call_soon(turns.append, read)
        batch = await follower.next(1)
        assert not isinstance(batch, Restarted)
        assert turns[-1] == read
        read += len(batch)
    assert len(turns) > 1


async def test_a_reader_that_is_canceled_in_the_moment_in_which_something_comes_ends(bus: Bus) -> None:
    follower = Follower(bus, [f"{NODE_CONTROL.prefix}.>"])
    await follower.start()
    try:
        while not follower.caught_up:
            await follower.next(60)
        reading = asyncio.create_task(follower.next(60))
        for _ in range(3):  # until it waits
            await asyncio.sleep(0)
        follower.poke()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    finally:
        await follower.stop()


async def test_trap_5_nothing_to_read_is_an_empty_batch_and_no_error(bus: Bus) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    await follower.start()
    assert [await follower.next(0.01) for _ in range(20)] == [[]] * 20
    await follower.stop()


async def test_trap_6_where_nobody_answers_a_write_backs_off_and_ends(settings: Settings) -> None:
    bus = await buses.connect(settings, "test", patience=60)  # no stream was ensured
    before = bus.nc.stats["out_msgs"]
    with pytest.raises(Unavailable, match="was not stored"):
        await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    assert bus.nc.stats["out_msgs"] - before <= records.ATTEMPTS
    await bus.close()


async def test_trap_8_a_reader_that_loses_messages_drops_its_state_and_loads_anew(bus: Bus) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter], pending_messages=50)
    await follower.start()
    await loaded(follower)
    wanted = {f"steer.node_control.n{number}" for number in range(1000)}
    await bus.nc.flush()
    for subject in sorted(wanted):
        await bus.nc.publish(subject, b"{}")
    state: set[str] = set()
    restarts = 0
    async with asyncio.timeout(60):
        while state != wanted:
            batch = await follower.next(1)
            if isinstance(batch, Restarted):
                state.clear()
                restarts += 1
                follower._pending_messages = 100_000
            else:
                state |= {message.subject for message in batch}
    assert restarts, "nothing was lost: the trap was not sprung"
    await follower.stop()


async def test_trap_8_a_reader_that_is_only_slow_loses_nothing(bus: Bus) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    await follower.start()
    await loaded(follower)
    for number in range(20_000):
        await bus.nc.publish(f"steer.node_control.n{number}", b"x" * 500)
    await bus.nc.flush()
    messages = await received(follower, 20_000)
    assert [message.sequence for message in messages] == list(range(1, 20_001))
    await follower.stop()


async def test_trap_9_a_write_that_timed_out_is_stored_once(bus: Bus, server: EmbeddedServer) -> None:
    assert server.process is not None
    await stop_process(server.process.pid)
    writing = asyncio.create_task(records.put(bus, NODE_CONTROL, ("n1",), NodeControl()))
    await asyncio.wait([writing], timeout=records.ATTEMPT_SECONDS + 0.5)
    assert not writing.done()
    server.process.send_signal(signal.SIGCONT)
    await writing
    assert len(await records.history(bus, "steer.node_control.n1")) == 1


async def test_trap_9_a_fenced_write_that_timed_out_cannot_land_in_a_later_term(
    bus: Bus, server: EmbeddedServer
) -> None:
    lease = Lease(bus, "scheduler", "one", 600)
    async with tried(lease):
        await eventually(lambda: lease.held)
    committer = Committer(bus.settings, "scheduler", "test")
    committer.timeout = 0.5
    await open_term(committer, "scheduler", "one", lease, 0)
    first = committer.term
    message = outgoing(Change(NODE_CONTROL, ("n1",), NodeControl()))
    assert server.process is not None
    await stop_process(server.process.pid)
    outcome = await committer.commit([message])
    assert isinstance(outcome, Unknown)
    await committer.close()
    server.process.send_signal(signal.SIGCONT)
    committer.timeout = 5
    await eventually(lambda: open_term(committer, "scheduler", "one", lease, first))
    late = await records.last_message(bus, message.subject)
    assert late is None or late.sequence < committer.term
    await committer.close()


async def test_trap_10_connecting_to_a_server_that_is_away_ends_when_the_patience_does(
    settings: Settings, server: EmbeddedServer
) -> None:
    server.kill()
    with pytest.raises(Unavailable, match="no NATS server answers"):
        await asyncio.wait_for(buses.connect(settings, "test", patience=0.2), 60)


async def test_trap_10_a_service_waits_for_a_server_that_is_away(
    settings: Settings, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.kill()
    connecting = asyncio.create_task(buses.connect(settings, "test"))
    await asyncio.wait([connecting], timeout=0.3)
    server.start(tmp_path / "jetstream", server.port)
    bus = await asyncio.wait_for(connecting, 60)
    assert bus.nc.is_connected
    await bus.close()


async def test_trap_10_closing_while_reconnecting_ends(settings: Settings, server: EmbeddedServer) -> None:
    bus = await buses.connect(settings, "test", patience=60)
    server.kill()
    await eventually(lambda: not bus.connected.is_set())
    await asyncio.wait_for(bus.close(), 60)
    assert bus.closed.is_set()


async def test_trap_11_the_bucket_allows_direct_reads(bus: Bus) -> None:
    config = (await api(bus, f"STREAM.INFO.{STREAM_NAME}"))["config"]
    assert config["allow_direct"]
    assert config["max_msgs_per_subject"] == 1
    assert config["allow_msg_ttl"]


async def test_trap_12_streams_that_were_just_deleted_are_made_again(bus: Bus) -> None:
    for _ in range(10):
        for declaration in streams.declarations(1):
            await api(bus, f"STREAM.DELETE.{declaration['name']}")
        await streams.ensure(bus)
    assert await records.put(bus, NODE_CONTROL, ("n1",), NodeControl()) == 1
