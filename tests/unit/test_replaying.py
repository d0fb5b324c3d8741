"""What simulated worlds have decided is decided again from their logs, and what was changed in a log is found."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from functools import cache

import orjson
import pytest

from services.builder.config import BuilderConfig
from services.builder.service import service as builder
from services.cli.log_reading import Extent, commits, commits_in
from services.cli.replay import Told, replay
from services.pooler.service import service as pooler
from services.scheduler.service import service as scheduler
from shared import subjects
from shared.invariants.batches import BATCH, BATCH_COMMIT, BATCH_SEQUENCE
from shared.runtime import encode
from shared.runtime.follower import Message
from tests.simulation.builders import BuilderWorld
from tests.simulation.test_pooler import PoolerWorld
from tests.simulation.wire import Stored
from tests.simulation.world import SERVICES, Makers, World

FOR_EVER = 1e6
DECISIONS = "steer.decision.scheduler."


def recorded(world: World | BuilderWorld | PoolerWorld) -> tuple[Message, ...]:
    """Its log as a stream has it: the messages of a batch say so."""
    found = [message for stored in world.log.messages() for message in _batch([stored])]
    world.log.watch(lambda stored: found.extend(_batch(stored)))
    world.run()
    return tuple(found)


def _batch(stored: Sequence[Stored]) -> Iterable[Message]:
    for number, each in enumerate(stored, start=1):
        headers = dict(each.headers)
        if len(stored) > 1:
            headers |= {BATCH: str(stored[0].sequence), BATCH_SEQUENCE: str(number)}
        if number == len(stored) > 1:
            headers[BATCH_COMMIT] = "1"
        yield Message(each.subject, each.sequence, each.at, headers, each.body)


@cache
def log() -> tuple[Message, ...]:
    return recorded(World(0, window_seconds=FOR_EVER))


def told(messages: Sequence[Message], makers: Makers = SERVICES, *, verify: bool = False) -> Told:
    return replay([make() for make in makers], messages, FOR_EVER, verify=verify)


def differences(messages: Sequence[Message]) -> list[str]:
    return [f"{each.sequence} {text}" for each in told(messages).different for text in each.differences or ()]


def test_every_decision_of_a_world_is_made_again_as_it_was_and_every_invariant_holds() -> None:
    found = told(log(), verify=True)
    assert found.different == []
    assert found.breaches == []
    made = {name: [each.differences for each in found] for name, found in found.decisions.items()}
    assert len(made["scheduler"]) > 50
    assert len(made["routes"]) > 10
    assert None not in [*made["scheduler"], *made["routes"]], "nothing is left out of a log that was not trimmed"


def test_many_of_them_rest_on_telemetry() -> None:
    heard = [message for message in log() if message.subject.startswith(DECISIONS) and b'"attended_at"' in message.body]
    assert len(heard) > 10


@pytest.mark.parametrize(
    ("world", "make"),
    [
        (lambda: BuilderWorld(3), lambda: builder(BuilderConfig(registry_address="r"))),
        (lambda: PoolerWorld(1, replicated=True), pooler),
    ],
    ids=["builds", "pools"],
)
def test_builds_and_pools_are_decided_again_too(world, make) -> None:  # type: ignore[no-untyped-def]
    found = told(recorded(world()), (make,))
    assert found.different == []
    assert sum(map(len, found.decisions.values())) > 30


def changed(messages: Sequence[Message], prefix: str, **fields: object) -> list[Message]:
    """The log with the last record below a prefix changed."""
    found = list(messages)
    last = max(index for index, each in enumerate(found) if each.subject.startswith(prefix) and each.body)
    body = orjson.dumps(orjson.loads(found[last].body) | fields)
    found[last] = found[last]._replace(body=body)
    return found


def test_a_decision_that_was_changed_in_the_log_is_found_with_its_path() -> None:
    found = differences(changed(log(), DECISIONS, outcome="forged"))
    assert len(found) == 1
    assert 'outcome: "forged" in the log' in found[0]


def test_a_decision_that_does_not_say_what_it_heard_is_found() -> None:
    found = list(log())
    index = next(
        index
        for index, each in enumerate(found)
        if each.subject.startswith(DECISIONS) and b"and the proxies have it" in each.body
    )
    body = orjson.loads(found[index].body) | {"observation": {}}
    found[index] = found[index]._replace(body=orjson.dumps(body))
    assert [text.split()[0] for text in differences(found)][:1] == [str(found[index].sequence)]


def test_what_was_decided_on_a_record_that_the_log_does_not_have_differs() -> None:
    asked = [each for each in log() if each.subject.startswith("steer.deploy.")]
    assert differences([each for each in log() if each not in asked]) != []


def test_what_is_older_than_the_window_of_a_trimmed_log_is_left_out() -> None:
    trimmed = log()[1:]
    assert Extent.of(log()).whole_since(60) is None
    since = Extent.of(trimmed).whole_since(60)
    assert since == trimmed[-1].at - timedelta(seconds=60)
    found = replay([scheduler()], trimmed, 60, verify=True)
    left_out = {each.differences is None for each in found.decisions["scheduler"]}
    assert left_out == {True, False}
    assert all(trimmed[breach.sequence - 2].at >= since for breach in found.breaches)


def _without(messages: Sequence[Message], index: int) -> list[Message]:
    """The log as if something else had been stored there."""
    stranger = messages[index]._replace(headers={}, subject="steer.node.n1")
    return [*messages[:index], stranger, *messages[index + 1 :]]


def breaches(messages: Sequence[Message]) -> list[tuple[str, int, str]]:
    return [(each.invariant, each.sequence, each.detail) for each in told(messages, (), verify=True).breaches]


def test_an_older_term_a_torn_batch_and_a_wrong_digest_are_found_at_their_sequences() -> None:
    messages = log()
    terms = [each for each in messages if each.subject == subjects.TERM.subject("scheduler")]
    stale = next(each for each in messages if (each.headers or {}).get(encode.TERM) == str(terms[0].sequence))
    late = Message(stale.subject, messages[-1].sequence + 1, stale.at, stale.headers, stale.body)
    assert len(terms) > 1
    assert [each[:2] for each in breaches([*messages, late])][:1] == [("1", late.sequence)]
    end = next(index for index, each in enumerate(messages) if BATCH_COMMIT in (each.headers or {}))
    assert ("batch", messages[end].sequence) in [each[:2] for each in breaches(_without(messages, end - 1))]
    assert ("batch", messages[end - 1].sequence) in [each[:2] for each in breaches(_without(messages, end))]
    forged = changed(messages, "steer.route.manifest", digest="0" * 64)
    assert [each[0] for each in breaches(forged)] == ["9"]


def test_the_messages_of_a_batch_are_one_commit_and_others_one_each() -> None:
    sizes = [len(commit) for commit in commits(log())]
    assert sum(sizes) == len(log())
    assert max(sizes) > 1
    assert sizes.count(1) > 10


@pytest.mark.parametrize("size", [1, 7, 500])
async def test_a_log_that_is_read_in_pieces_has_the_same_commits(size: int) -> None:
    async def read() -> AsyncIterator[list[Message]]:
        for start in range(0, len(log()), size):
            yield list(log()[start : start + size])

    found = [[each.sequence for each in commit] async for commit in commits_in(read())]
    assert found == [[each.sequence for each in commit] for commit in commits(log())]
