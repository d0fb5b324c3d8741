"""A connection over which messages come is alive; what a failed or a late reconnect leaves is not."""

import asyncio
import contextlib
import gc

import nats.errors
import pytest

from shared.runtime.bus import Bus, connect
from shared.runtime.settings import Settings
from shared.runtime.tasks import end

INFO = b'INFO {"server_id":"s","version":"2.11.0","max_payload":1048576,"headers":true}\r\n'


async def test_a_message_is_a_sign_of_life_while_the_pong_waits_behind_it() -> None:
    taken: list[bytes] = []
    client = Bus(Settings(), "test").nc
    client.takers[1] = lambda subject, reply, body, headers: taken.append(body)
    client._pings_outstanding = 2
    await client._ps.parse(b"MSG steer.node.n1 1 2\r\n{}\r\n")
    assert (taken, client._pings_outstanding) == ([b"{}"], 0)


async def test_a_reconnect_that_fails_in_the_handshake_leaves_no_connection_open() -> None:
    hangs_up = {1: "after its first pong", 2: "at once", 3: "at once"}
    calls = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        call = calls
        if hangs_up.get(call) != "at once":
            writer.write(INFO)
            while line := await reader.readline():
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
                    if call in hangs_up:
                        break
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        bus = await connect(Settings(nats_url=f"nats://127.0.0.1:{port}"), "test", patience=60)
        back = asyncio.Event()
        bus.on_reconnect(back.set)
        await asyncio.wait_for(back.wait(), 60)
        assert calls == 4
        gc.collect()  # what is still open warns, and a warning is an error
        await bus.close()


async def test_a_client_that_was_closed_does_not_come_back(settings: Settings) -> None:
    bus = await connect(settings, "test", patience=60)
    await bus.close()
    bus.nc._status = bus.nc.RECONNECTING  # as a reconnect does that was about to succeed
    with pytest.raises(nats.errors.NoServersError):
        await bus.nc._select_next_server()


async def test_a_connecting_that_is_given_up_leaves_no_connection_open() -> None:
    called, left = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connecting = asyncio.create_task(connect(Settings(nats_url=f"nats://127.0.0.1:{port}"), "test"))
        await called.wait()
        await end(connecting)
        await asyncio.wait_for(left.wait(), 60)


async def test_a_cancellation_that_was_lost_ends_the_search_for_a_server_all_the_same(settings: Settings) -> None:
    bus = await connect(settings, "test", patience=60)

    async def search() -> None:
        searching = asyncio.current_task()
        assert searching is not None
        searching.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # as in the library, at the end of an attempt
            await asyncio.sleep(0)
        await bus.nc._select_next_server()

    searching = asyncio.create_task(search())
    await asyncio.wait([searching])
    assert searching.cancelled()
    await bus.close()
