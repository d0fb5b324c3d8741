"""What holds for every `Service` value, at moments of recorded histories with all their faults."""

from collections.abc import Iterator
from random import Random

import pytest

from shared.runtime import encode
from shared.subjects import DECISION, NOTICE, kind_of

from .mix import Mix
from .recording import Moment, Recording, last_per_subject, mixed, recorded, written
from .world import SERVICES, World

SEEDS = range(3)
MIX = Mix(builds=True, functions=True, snapshots=True)
"""Without scaling: what follows telemetry may come later in a state that was not told to look."""
MOMENTS_OF_A_LIFE = 5
MOST_PASSES = 300


@pytest.fixture(scope="module")
def moments() -> list[tuple[Recording, Moment]]:
    """Moments at which an instance decided something, or found nothing to decide."""
    found: list[tuple[Recording, Moment]] = []
    for seed in SEEDS:
        lives: list[Recording] = []
        World(seed, services=tuple(recorded(make, lives) for make in SERVICES), mix=MIX).run()
        random = Random(seed)
        found += [(life, moment) for life in lives for moment in life.sampled(random, MOMENTS_OF_A_LIFE)]
    assert {life.service.name for life, _ in found} == {"scheduler", "routes", "pooler", "builder"}
    return found


def _plan(life: Recording, moment: Moment, state: object) -> list[tuple[str, bytes, int | None]]:
    return written(life.service, life.service.decide(state, moment.now), moment.now)


def test_a_state_that_is_built_anew_decides_as_the_one_that_kept_count(moments: list[tuple[Recording, Moment]]) -> None:
    """What is to change. Texts may differ: who waits is not told of every new reason, only looked at when it may end."""
    for life, moment in moments:
        state = life.state(moment, life.versions(moment))
        kept = written(life.service, moment.plan, moment.now)
        assert _without_texts(_plan(life, moment, state)) == _without_texts(kept)


def _without_texts(messages: list[tuple[str, bytes, int | None]]) -> list[tuple[str, bytes, int | None]]:
    return [message for message in messages if kind_of(message[0])[0] not in (DECISION, NOTICE)]


def test_a_state_loaded_from_the_last_versions_decides_as_one_that_followed_everything(
    moments: list[tuple[Recording, Moment]],
) -> None:
    for life, moment in moments:
        followed = life.state(moment, life.versions(moment))
        loaded = life.state(moment, last_per_subject(life.versions(moment)))
        assert _plan(life, moment, loaded) == _plan(life, moment, followed)


def test_the_order_of_different_subjects_and_repetitions_change_nothing(
    moments: list[tuple[Recording, Moment]],
) -> None:
    random = Random(1)
    for life, moment in moments:
        versions = life.versions(moment)
        straight = life.state(moment, versions)
        crooked = life.state(moment, mixed(versions, random))
        assert _plan(life, moment, crooked) == _plan(life, moment, straight)


def test_deciding_changes_nothing(moments: list[tuple[Recording, Moment]]) -> None:
    for life, moment in moments:
        state = life.state(moment, life.versions(moment))
        first = life.service.decide(state, moment.now)
        assert life.service.decide(state, moment.now) == first
        for version in life.versions(moment)[-3:]:
            life.service.fold(state, version)
        assert written(life.service, life.service.decide(state, moment.now), moment.now) == written(
            life.service, first, moment.now
        )


def test_plans_come_to_an_end_and_deciding_again_finds_nothing(moments: list[tuple[Recording, Moment]]) -> None:
    for life, moment in moments:
        state = life.state(moment, life.versions(moment))
        passes = sum(1 for _ in _until_nothing_is_left(life, moment, state))
        assert passes < MOST_PASSES
        assert not life.service.decide(state, moment.now).decisions


def _until_nothing_is_left(life: Recording, moment: Moment, state: object) -> Iterator[None]:
    """Decide and fold what was decided, as if it had been stored at once."""
    sequence = max((version.sequence for version in life.versions(moment)), default=0)
    for _ in range(MOST_PASSES):
        plan = life.service.decide(state, moment.now)
        for message in encode.messages(life.service.name, plan, sequence, moment.now):
            sequence += 1
            life.service.fold(state, message.version(sequence, moment.now))
        life.service.settle(state, plan, moment.now)
        if not plan.decisions:
            return
        yield
