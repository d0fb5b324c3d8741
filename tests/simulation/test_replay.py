"""10: every decision of a world can be made again from its log, byte for byte, with all that went wrong in it."""

import pytest

from services.cli.replay import replay
from shared.runtime.follower import Message

from .world import SERVICES, World

FOR_EVER = 1e6


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_decision_that_is_replayed_from_the_log_is_identical(seed: int) -> None:
    world = World(seed, window_seconds=FOR_EVER)
    world.run()
    log = [Message(each.subject, each.sequence, each.at, each.headers, each.body) for each in world.log.messages()]
    told = replay([make() for make in SERVICES], log, FOR_EVER, verify=False)
    assert any(told.decisions.values())
    assert [text for each in told.different for text in each.differences or ()] == []
