"""Trimming: what is older than the window goes, except for what still rules."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from shared.runtime import keeper, records
from shared.runtime.bus import Bus
from shared.runtime.keeper import Keeper
from shared.runtime.tasks import end
from shared.subjects import ENVIRONMENT, NODE_CONTROL, SCALE, STREAM
from tests.integration.running import ask, eventually
from tests.integration.test_runtime_quarantine import publish

KEY = ("shop", "web", "production")
SUBJECT = ENVIRONMENT.subject(*KEY)


@pytest.fixture
def later(bus: Bus) -> Keeper:
    """A keeper to which all that was written is older than the window."""
    return Keeper(bus, lambda: True, lambda: datetime.now(UTC) + timedelta(days=8))


async def sequences(bus: Bus, subject: str = SUBJECT) -> list[int]:
    return [message.sequence for message in await records.history(bus, subject)]


async def test_of_old_versions_the_newest_stays(bus: Bus, later: Keeper) -> None:
    for replicas in (1, 2, 3):
        await ask(bus, KEY, replicas)
    await later.round()
    assert await sequences(bus) == [3]


async def test_inside_the_window_every_version_stays(bus: Bus) -> None:
    for replicas in (1, 2, 3):
        await ask(bus, KEY, replicas)
    await Keeper(bus, lambda: True, lambda: datetime.now(UTC)).round()
    assert await sequences(bus) == [1, 2, 3]


async def test_the_version_that_ruled_when_the_window_began_stays(bus: Bus) -> None:
    for replicas in (1, 2):
        await ask(bus, KEY, replicas)
    boundary = (await records.history(bus, SUBJECT))[-1].at
    third = await ask(bus, KEY, 3)
    await Keeper(bus, lambda: True, lambda: boundary + timedelta(days=7, microseconds=1)).round()
    assert await sequences(bus) == [2, third]


async def test_a_bad_version_does_not_push_the_good_one_out(bus: Bus, later: Keeper) -> None:
    await ask(bus, KEY, 1)
    await ask(bus, KEY, 2)
    await publish(bus, SUBJECT, b"{")
    await later.round()
    assert await sequences(bus) == [2, 3]


async def test_an_old_tombstone_goes_and_all_before_it(bus: Bus, later: Keeper) -> None:
    await ask(bus, KEY, 1)
    await records.put(bus, ENVIRONMENT, KEY, None)
    await later.round()
    assert await sequences(bus) == []


async def test_a_record_that_was_made_again_after_its_deletion_stays(bus: Bus, later: Keeper) -> None:
    await ask(bus, KEY, 1)
    await records.put(bus, ENVIRONMENT, KEY, None)
    await ask(bus, KEY, 2)
    await later.round()
    assert await sequences(bus) == [3]


async def test_the_tombstone_of_a_user_stays_while_something_else_carries_its_key(bus: Bus, later: Keeper) -> None:
    await ask(bus, KEY, 1)
    await publish(bus, SCALE.subject(*KEY), b'{"effective_replicas":1,"policy":"resource"}')
    await records.put(bus, ENVIRONMENT, KEY, None)
    await later.round()
    assert await sequences(bus) == [3]
    await records.put(bus, SCALE, KEY, None)
    await later.round()  # the other tombstone goes
    await later.round()  # and then this one
    assert await sequences(bus) == []


async def test_the_versions_of_other_records_are_left_alone(bus: Bus, later: Keeper) -> None:
    await records.put(bus, NODE_CONTROL, ("n1",), None)
    for replicas in (1, 2):
        await ask(bus, KEY, replicas)
        await ask(bus, ("shop", "web", "staging"), replicas)
    await later.round()
    assert await sequences(bus) == [4]
    assert await sequences(bus, "steer.environment.shop.web.staging") == [5]


async def test_a_literal_wildcard_in_a_subject_purges_nobody_else(bus: Bus, later: Keeper) -> None:
    await ask(bus, KEY, 1)
    for _ in range(2):
        await bus.nc._send_command(
            b"HPUB steer.environment.*.web.production 37 37\r\nNATS/1.0\r\nSteer-Operation: delete\r\n\r\n\r\n"
        )
    await bus.nc._flush_pending()
    await bus.nc.flush()
    await later.round()
    assert await sequences(bus) == [1]


async def test_who_does_not_lead_purges_nothing(bus: Bus) -> None:
    for replicas in (1, 2):
        await ask(bus, KEY, replicas)
    await Keeper(bus, lambda: False, lambda: datetime.now(UTC) + timedelta(days=8)).round()
    assert await sequences(bus) == [1, 2]


async def test_a_log_of_many_pieces_is_walked_to_its_end(bus: Bus, later: Keeper) -> None:
    for number in range(2500):
        await bus.nc.publish(f"steer.node_control.n{number % 50}", b"{}")
    await bus.nc.flush()
    rounds = 0

    async def trimmed() -> bool:
        nonlocal rounds
        rounds += 1
        await later.round()
        return (await bus.js.stream_info(STREAM)).state.messages <= 50

    await eventually(trimmed)
    assert rounds > 1
    assert len(await records.load(bus, [NODE_CONTROL.subject_filter])) == 50


async def test_a_fault_in_one_round_is_told_and_the_next_round_trims(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "IDLE_SECONDS", 0.0)
    faults = [ZeroDivisionError("a fault in the clock")]

    def now() -> datetime:
        if faults:
            raise faults.pop()
        return datetime.now(UTC) + timedelta(days=8)

    for replicas in (1, 2, 3):
        await ask(bus, KEY, replicas)
    with capture_logs() as logs:
        running = asyncio.create_task(Keeper(bus, lambda: True, now).run())

        async def trimmed() -> bool:
            return await sequences(bus) == [3]

        await eventually(trimmed)
        await end(running)
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["a fault in trimming; trying again"]
