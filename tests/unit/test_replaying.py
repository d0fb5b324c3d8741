"""What a simulated world has decided is decided again from its log, and what was changed in the log is found."""

from collections.abc import Sequence
from functools import cache
from itertools import groupby

import orjson
import pytest

from services.cli.replaying import History
from services.cli.verifying import BATCH, BATCH_COMMIT, BATCH_SEQUENCE, violations
from shared import subjects
from shared.runtime import encode
from shared.runtime.follower import Message
from tests.simulation.world import SERVICES, World

FOR_EVER = 1e6
AT_MOST = 60


@cache
def log(seed: int) -> tuple[Message, ...]:
    world = World(seed, window_seconds=FOR_EVER)
    world.run()
    stored = [
        Message(each.subject, each.sequence, each.at, dict(each.headers), each.body) for each in world.log.messages()
    ]
    return tuple(batch for _, group in groupby(stored, _commit) for batch in _numbered(list(group)))


def _commit(message: Message) -> object:
    """One moment of the virtual clock is one commit of a service."""
    service = (message.headers or {}).get(encode.SERVICE)
    return (service, message.at) if service else message.sequence


def _numbered(group: list[Message]) -> list[Message]:
    """As the real log has the messages of one batch."""
    if len(group) == 1:
        return group
    ids = [{BATCH: str(group[0].sequence), BATCH_SEQUENCE: str(number)} for number in range(1, len(group) + 1)]
    ids[-1][BATCH_COMMIT] = "1"
    return [each._replace(headers={**(each.headers or {}), **extra}) for each, extra in zip(group, ids, strict=True)]


def differences(messages: Sequence[Message]) -> list[str]:
    found = []
    for make in SERVICES:
        for each in History(make(), messages).replay(AT_MOST):
            found += [f"{each.sequence} {text}" for text in each.differences or ()]
    return found


@pytest.mark.parametrize("seed", range(2))
def test_every_decision_of_a_world_is_made_again_as_it_was(seed: int) -> None:
    assert differences(log(seed)) == []
    made = [each for each in History(SERVICES[0](), log(seed)).replay(AT_MOST) if each.differences == ()]
    assert len(made) > AT_MOST // 2
    assert violations(log(seed)) == []


def changed(messages: Sequence[Message], prefix: str, **fields: object) -> list[Message]:
    """The log with the last record below a prefix changed."""
    found = list(messages)
    last = max(index for index, each in enumerate(found) if each.subject.startswith(prefix) and each.body)
    body = orjson.dumps(orjson.loads(found[last].body) | fields)
    found[last] = found[last]._replace(body=body)
    return found


def test_a_decision_that_was_changed_in_the_log_is_found_with_its_path() -> None:
    found = differences(changed(log(0), "steer.decision.scheduler.", outcome="forged"))
    assert len(found) == 1
    assert 'outcome: "forged" in the log' in found[0]


def test_a_record_without_its_decision_s_cause_is_found() -> None:
    """What was decided on a record that the log does not have cannot be decided again."""
    asked = [each for each in log(0) if each.subject.startswith("steer.deploy.")]
    assert differences([each for each in log(0) if each not in asked]) != []


def _without(messages: Sequence[Message], index: int) -> list[Message]:
    """The log as if something else had been stored there."""
    stranger = messages[index]._replace(headers={}, subject="steer.node.n1")
    return [*messages[:index], stranger, *messages[index + 1 :]]


def test_an_older_term_a_torn_batch_and_a_wrong_digest_are_found() -> None:
    messages = log(0)
    terms = [each for each in messages if each.subject == subjects.TERM.subject("scheduler")]
    stale = next(each for each in messages if (each.headers or {}).get(encode.TERM) == str(terms[0].sequence))
    late = Message(stale.subject, messages[-1].sequence + 1, stale.at, stale.headers, stale.body)
    assert len(terms) > 1
    assert any("was opened" in text for text in violations([*messages, late]))
    ends = [index for index, each in enumerate(messages) if BATCH_COMMIT in (each.headers or {})]
    assert any("are not before it" in text for text in violations(_without(messages, ends[0] - 1)))
    assert any("not committed" in text for text in violations(_without(messages, ends[0])))
    forged = changed(messages, "steer.route.manifest", digest="0" * 64)
    assert any("digest" in text for text in violations(forged))
