"""Invariants 8 and 11 over random histories of builds: crashes, zombies, lost answers, dying workers, late reports.

Seeds 0 to 39 run here; `STEER_BUILDER_SEEDS` asks for another number of them.
"""

import os
from typing import Any

import pytest
from sortedcontainers import SortedSet

from services.builder.indexes import Served
from services.builder.line import Line
from services.builder.service import service
from services.builder.state import State, attend, fold
from shared.service import Version
from shared.subjects import BUILD
from tests.simulation.builders import BuilderWorld

SEEDS = int(os.environ.get("STEER_BUILDER_SEEDS", "40"))
PIECES = 10


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("piece", range(PIECES))
def test_every_build_ends_right_whatever_goes_wrong(piece: int) -> None:
    succeeded = 0
    for seed in range(piece, SEEDS, PIECES):
        world = BuilderWorld(seed)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert all(times == 1 for times in world.succeeded.times.values()), seed
        succeeded += len(world.succeeded.times)
    assert succeeded


def test_a_state_that_was_loaded_decides_as_the_one_that_followed() -> None:
    world = BuilderWorld(3)
    world.run()
    leader = next(instance for instance in world.instances if instance.leading)
    loaded: State = service().new_state()
    for sequence in world.log.last_per_subject(service().reads):
        stored = world.log.get(sequence)
        assert stored is not None
        version = world.log.read(stored)
        assert isinstance(version, Version)
        fold(loaded, version)
    attend(loaded, leader.now())
    for name in ("lines", "held", "served", "running_at", "open_in", "workers_of", "leases_of", "ended_of", "used"):
        mine, theirs = (_plain(getattr(each.indexes, name)) for each in (loaded, leader.state))
        assert mine == theirs, name
    assert not service().decide(loaded, leader.now()).decisions
    assert loaded.tables[BUILD].keys() >= {key for key, _ in world.log.current(BUILD).items()}


def _plain(index: dict[object, Any]) -> dict[object, Any]:
    """An index by its content; what is empty counts as absent."""
    return {key: plain for key, value in index.items() if (plain := _content(value))}


def _content(value: Any) -> Any:
    match value:
        case Line():
            return {owner: list(tickets) for owner, tickets in value.by_owner.items()}
        case Served():
            return value.last()
        case SortedSet():
            return list(value)
        case _:
            return value
