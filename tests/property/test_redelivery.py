"""Everything comes once, twice or three times, and not quite in its order: nobody can tell afterwards."""

from random import Random

import pytest

from services.scheduler.service import service
from services.scheduler.telemetry import attend
from shared import codec
from shared.runtime import encode
from shared.runtime.encode import DELETE, OPERATION
from shared.runtime.follower import Message
from shared.runtime.world import World
from tests.unit import scheduler_world
from tests.unit.scheduler_world import EPOCH

WINDOW = 5
MOST_TIMES = 3
PREFIXES = 8


@pytest.fixture(scope="module")
def history() -> list[Message]:
    """A rollout, replicas that are taken away and forgotten, a node that is lost, and a wish for more."""
    world = scheduler_world.World()
    world.serving(replicas=2, nodes=4)
    world.environment(replicas=1)
    world.settle()
    world.route()
    world.advance(700)
    world.agents_stop()
    world.advance(60)
    world.silenced = {"n1"}
    world.advance(60)
    world.environment(replicas=3)
    world.settle()
    return [
        Message(
            change.kind.subject(*change.key),
            sequence,
            EPOCH,
            {OPERATION: DELETE} if change.record is None else None,
            b"" if change.record is None else codec.encode(change.record),
        )
        for sequence, change in world.log
    ]


def delivered(messages: list[Message], random: Random) -> list[Message]:
    """Each of them up to three times, at most so many places from where it belongs."""
    places = [
        (place + random.uniform(0, WINDOW), message)
        for place, message in enumerate(messages)
        for _ in range(random.randint(1, MOST_TIMES))
    ]
    return [message for _, message in sorted(places, key=lambda each: each[0])]


async def decided(messages: list[Message]) -> list[tuple[str, bytes]]:
    """What a leader would write that has received these."""
    world = World(service())
    await world.fold(messages, max(message.sequence for message in messages))
    world.end_load()
    attend(world.state, EPOCH)
    plan = world.service.decide(world.state, EPOCH)
    return [(each.subject, each.body) for each in encode.messages("scheduler", plan, 0, EPOCH)]


@pytest.mark.parametrize("seed", range(3))
async def test_scenario_28_duplicate_delivery(history: list[Message], seed: int) -> None:
    random = Random(seed)
    commands = 0
    for length in range(len(history), 0, -len(history) // PREFIXES):
        prefix = history[:length]
        once = await decided(prefix)
        assert await decided(delivered(prefix, random)) == once
        commands += len(once)
    assert commands, "nothing was ever to be decided"
