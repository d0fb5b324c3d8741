"""What a standby does before it leads, and a leader whose passes come to nothing for long."""

from dataclasses import replace
from datetime import datetime

from shared.runtime.bus import Bus
from shared.service import Plan
from tests.integration import toy
from tests.integration.running import Start, ask, eventually

KEY = ("shop", "web", "production")
PASSES = 50


async def test_a_standby_rehearses_until_nothing_is_left_and_goes_on(bus: Bus, start: Start) -> None:
    states: list[toy.State] = []

    def rehearse(state: toy.State, now: datetime) -> bool:
        states.append(state)
        return len(states) < 3  # more is left

    leading = await start()
    await eventually(lambda: leading.leading)
    standby = await start(replace(toy.service(), rehearse=rehearse))
    await eventually(lambda: len(states) > 3)
    assert all(state is standby.state for state in states)
    await ask(bus, KEY, 3)
    await leading.stop()
    await eventually(lambda: standby.leading and standby.state.counted.get(KEY) == 3)


async def test_passes_that_come_to_nothing_for_long_let_others_in(bus: Bus, start: Start) -> None:
    """A look at a whole world takes many passes; the lease has to be renewed and the log to be read meanwhile."""
    looks = 0

    def decide(state: toy.State, now: datetime) -> Plan:
        nonlocal looks
        if KEY in state.wanted:
            return toy.decide(state, now)
        looks += 1
        return Plan((), now)

    one = await start(replace(toy.service(), decide=decide))
    await eventually(lambda: looks > PASSES)
    await ask(bus, KEY, 2)
    await eventually(lambda: one.state.counted.get(KEY) == 2)
