"""10: a decision can be made again from the log: the records up to its `read_sequence`, the own ones before it, `now`.

Decisions that used telemetry need their observation as well; those on records alone are made again here, byte for byte.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from shared.errors import InvalidRecord, InvalidSubject
from shared.invariants.batches import BATCH_SEQUENCE
from shared.model.service import DecisionRecord
from shared.runtime import encode
from shared.service import Service, Version
from shared.subjects import DECISION, NOTICE, TERM

from .log import Log
from .recording import last_per_subject
from .wire import Stored
from .world import SERVICES, World

DECISIONS_OF_A_WORLD = 25
FOR_EVER = 1e6


@pytest.mark.parametrize("seed", range(4))
def test_a_decision_that_is_replayed_from_the_log_is_identical(seed: int) -> None:
    world = World(seed, window_seconds=FOR_EVER)
    world.run()
    replayed = 0
    services = {service.name: service for service in (make() for make in SERVICES)}
    for stored, record in _sample(world.log, Random(seed)):
        service = services[stored.key[0]]
        versions = list(_known(world.log, service, stored, record))
        state = service.new_state()
        for version in last_per_subject(versions):
            service.fold(state, version)
        plan = service.decide(state, record.now)
        again = {m.subject: m.body for m in encode.messages(service.name, plan, record.read_sequence, record.now)}
        assert again.get(stored.subject) == stored.body, f"{stored.subject} at {stored.sequence}"
        for subject in record.changes:
            assert again[subject] == _in_the_same_commit(world.log, stored, subject).body
        replayed += 1
    assert replayed == DECISIONS_OF_A_WORLD


def _sample(log: Log, random: Random) -> list[tuple[Stored, DecisionRecord]]:
    """Decisions that were made on records alone."""
    found = []
    for stored in log.messages():
        if stored.kind is DECISION:
            record = log.read(stored).record
            if isinstance(record, DecisionRecord) and not record.observation:
                found.append((stored, record))
    return random.sample(found, DECISIONS_OF_A_WORLD)


def _known(log: Log, service: Service[Any], decision: Stored, record: DecisionRecord) -> Iterator[Version]:
    """What the service had read, and its own records before the decision."""
    first = _first_of_the_commit(decision)
    for stored in log.messages():
        if stored.sequence >= first:
            return
        own = stored.headers.get(encode.SERVICE) == service.name
        if (
            stored.kind not in service.reads
            or stored.kind is TERM
            or not (own or stored.sequence <= record.read_sequence)
        ):
            continue
        if stored.kind in (DECISION, NOTICE) and stored.key[0] != service.name:
            continue
        try:
            yield log.read(stored)
        except (InvalidRecord, InvalidSubject):
            continue  # nobody folds it


def _first_of_the_commit(decision: Stored) -> int:
    """What belongs to one commit lies side by side, and is numbered."""
    return decision.sequence - max(encode.sequence_in(decision.headers, BATCH_SEQUENCE), 1) + 1


def _in_the_same_commit(log: Log, decision: Stored, subject: str) -> Stored:
    for sequence in range(decision.sequence, 0, -1):
        stored = log.get(sequence)
        assert stored is not None
        if stored.subject == subject:
            return stored
    raise AssertionError(f"{subject} is not in the commit of {decision.subject}")
