"""Scenarios that users of such systems reported, on the real server: those that no other module tells."""

from shared.runtime import records
from shared.runtime.answers import TermLost
from shared.runtime.bus import Bus
from shared.runtime.commit import Committer
from shared.runtime.encode import outgoing
from shared.service import Change
from shared.subjects import SCALE
from tests.integration.running import Start, ask, counts, eventually

KEY = ("shop", "web", "production")


async def test_scenario_22_zombie_leader(bus: Bus, start: Start) -> None:
    """It is frozen with a decision in its hands, another one leads and decides, and it wakes up and publishes."""
    one = await start()
    await ask(bus, KEY, 3)
    await eventually(lambda: one.state.counted.get(KEY) == 3)
    zombie = Committer(bus.settings, "scheduler", "zombie")
    zombie.term = one.instance.leader.term
    await zombie.connect()
    await one.crash()
    two = await start()
    await ask(bus, KEY, 6)
    await eventually(lambda: two.state.counted.get(KEY) == 6)
    assert two.instance.leader.term > zombie.term
    for messages in ([outgoing(Change(SCALE, KEY, None))], [outgoing(Change(SCALE, KEY, None))] * 3):
        assert await zombie.commit(messages) == TermLost()
    await zombie.close()
    assert await counts(bus, KEY) == [1, 2, 3, 4, 5, 6]
    versions = await records.history(bus, SCALE.subject(*KEY))
    terms = [int((message.headers or {})["Steer-Term"]) for message in versions]
    assert terms == sorted(terms) and len(set(terms)) == 2
