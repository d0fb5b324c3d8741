"""What the simulator's log in memory does, the real server does: every test runs against both.

On the server a batch is sent with raw headers, as the committer sends it. The last test needs three servers: it shows
what a replicated stream refuses while a check is in process.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest

from shared.runtime import bus as buses
from shared.runtime import streams
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer, free_port
from shared.runtime.encode import DELETE, EXPECTED, EXPECTED_SUBJECT, OPERATION
from shared.runtime.follower import Follower, Restarted
from shared.runtime.jetstream import ApiError, api
from shared.runtime.records import stored_message
from shared.runtime.settings import Settings
from shared.subjects import DOMAIN, ENVIRONMENT, SCALE, STREAM, TERM
from tests.simulation.clock import Timeline
from tests.simulation.log import Log, Refused
from tests.simulation.wire import Message

A, B, C = (ENVIRONMENT.subject("shop", name, "production") for name in "abc")
GRANT = SCALE.subject("shop", "a", "production")
FENCE = TERM.subject("scheduler")
OTHER_FENCE = TERM.subject("routes")
WRONG, IN_PROCESS, TOO_MANY = 10071, 10164, 10199


class Store(Protocol):
    """A log. What it refuses is the error's code, as a negative number; else the last sequence is the result."""

    async def publish(self, *messages: Message) -> int: ...
    async def purge(self, subject: str, below: int) -> None: ...
    async def load(self) -> list[int]:
        """The sequences that a last-per-subject follower of all environments gets."""
        ...

    async def message(self, sequence: int) -> tuple[str, bytes, str] | None:
        """Subject, body and timestamp of a message, where it is still there."""
        ...


class Memory:
    def __init__(self) -> None:
        timeline = Timeline()
        self._log = Log(lambda: timeline.now)

    async def publish(self, *messages: Message) -> int:
        try:
            return self._log.publish_batch(messages)
        except Refused as refusal:
            return -refusal.code

    async def purge(self, subject: str, below: int) -> None:
        self._log.purge(subject, below)

    async def load(self) -> list[int]:
        return self._log.last_per_subject([ENVIRONMENT])

    async def message(self, sequence: int) -> tuple[str, bytes, str] | None:
        stored = self._log.get(sequence)
        return None if stored is None else (stored.subject, stored.body, stored.at.isoformat())


class Server:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(self, *messages: Message) -> int:
        if len(messages) == 1:
            return await self._ask(messages[0], {})
        batch = {"Nats-Batch-Id": uuid.uuid4().hex}
        for number, message in enumerate(messages[:-1], start=1):
            headers = {**message.headers, **batch, "Nats-Batch-Sequence": str(number)}
            await self._bus.publish(message.subject, message.body, headers)
        return await self._ask(
            messages[-1], {**batch, "Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
        )

    async def _ask(self, message: Message, headers: dict[str, str]) -> int:
        answer = await self._bus.request(message.subject, message.body, {**message.headers, **headers}, within=60)
        found: dict[str, Any] = orjson.loads(answer.data)
        return -int(found["error"]["err_code"]) if "error" in found else int(found["seq"])

    async def purge(self, subject: str, below: int) -> None:
        await api(self._bus, f"STREAM.PURGE.{STREAM}", {"filter": subject, "seq": below})

    async def load(self) -> list[int]:
        follower = Follower(self._bus, [ENVIRONMENT.subject_filter])
        await follower.start()
        found: list[int] = []
        while not follower.caught_up:
            batch = await follower.next(5)
            assert not isinstance(batch, Restarted)
            found += [message.sequence for message in batch]
        await follower.stop()
        return found

    async def message(self, sequence: int) -> tuple[str, bytes, str] | None:
        try:
            answer = await api(self._bus, f"STREAM.MSG.GET.{STREAM}", {"seq": sequence})
        except ApiError:
            return None
        stored = stored_message(answer["message"])
        return stored.subject, stored.body, stored.at.isoformat()


@pytest.fixture(params=["memory", "server"])
def log(request: pytest.FixtureRequest) -> Store:
    return Memory() if request.param == "memory" else Server(request.getfixturevalue("bus"))


def record(subject: str, body: bytes = b"{}", *, expected: int | None = None, of: str = "") -> Message:
    headers = {} if expected is None else {EXPECTED: str(expected)}
    return Message(subject, body, headers | ({EXPECTED_SUBJECT: of} if of else {}))


def tombstone(subject: str) -> Message:
    return Message(subject, b"", {OPERATION: DELETE})


async def test_sequences_count_every_message_and_time_never_goes_back(log: Store) -> None:
    assert [await log.publish(record(subject)) for subject in (A, B, A, A)] == [1, 2, 3, 4]
    found = [await log.message(sequence) for sequence in (1, 2, 3, 4)]
    assert [message[0] for message in found if message] == [A, B, A, A]
    times = [message[2] for message in found if message]
    assert times == sorted(times)


async def test_equal_messages_are_two_messages(log: Store) -> None:
    assert await log.publish(record(A)) != await log.publish(record(A))


async def test_an_expected_sequence_that_holds_is_stored_and_one_that_does_not_is_refused(log: Store) -> None:
    assert await log.publish(record(A, expected=0)) == 1
    assert await log.publish(record(A, expected=0)) == -WRONG
    assert await log.publish(record(A, expected=1)) == 2
    assert await log.publish(record(A, expected=1)) == -WRONG


async def test_what_is_refused_takes_no_sequence(log: Store) -> None:
    await log.publish(record(A))
    assert await log.publish(record(A, expected=7)) == -WRONG
    assert await log.publish(record(A), record(B, expected=7)) == -WRONG
    assert await log.publish(record(A)) == 2


async def test_a_tombstone_is_a_message_like_any_other(log: Store) -> None:
    await log.publish(record(A))
    await log.publish(tombstone(A))
    assert await log.publish(record(A, expected=0)) == -WRONG
    assert await log.publish(record(A, expected=2)) == 3


async def test_a_fence_looks_at_another_subject(log: Store) -> None:
    term = await log.publish(record(FENCE))
    assert await log.publish(record(A, expected=term, of=FENCE)) == 2
    newer = await log.publish(record(FENCE, expected=term))
    assert await log.publish(record(A, expected=term, of=FENCE)) == -WRONG
    assert await log.publish(record(A, expected=newer, of=FENCE)) == 4


async def test_a_fence_that_lands_late_is_refused(log: Store) -> None:
    """A commit whose sender has given up, and opened a new term meanwhile."""
    term = await log.publish(record(FENCE))
    late = (record(A, expected=term, of=FENCE), record(B))
    await log.publish(record(FENCE, expected=term))
    assert await log.publish(*late) == -WRONG
    assert await log.load() == []


async def test_the_terms_of_different_services_do_not_disturb_each_other(log: Store) -> None:
    one, other = await log.publish(record(FENCE)), await log.publish(record(OTHER_FENCE))
    assert await log.publish(record(A, expected=one, of=FENCE)) > 0
    assert await log.publish(record(B, expected=other, of=OTHER_FENCE)) > 0
    assert await log.publish(record(A, expected=one, of=FENCE)) > 0


async def test_a_batch_is_stored_as_a_whole_and_side_by_side(log: Store) -> None:
    await log.publish(record(A))
    assert await log.publish(record(A, b"1"), record(B, b"2"), record(C, b"3")) == 4
    bodies = [message[1] for sequence in (2, 3, 4) if (message := await log.message(sequence))]
    assert bodies == [b"1", b"2", b"3"]


async def test_a_batch_is_refused_as_a_whole(log: Store) -> None:
    term = await log.publish(record(FENCE))
    await log.publish(record(B))
    stale_last = [record(A, expected=term, of=FENCE), record(C), record(B, expected=0)]
    assert await log.publish(*stale_last) == -WRONG
    assert await log.message(3) is None
    assert await log.load() == [2]


async def test_a_batch_may_check_the_fence_and_a_subject_of_its_own(log: Store) -> None:
    term = await log.publish(record(FENCE))
    await log.publish(record(B))
    assert await log.publish(record(A, expected=term, of=FENCE), record(B, expected=2)) == 4


async def test_the_fence_may_stand_on_any_message_of_a_batch(log: Store) -> None:
    term = await log.publish(record(FENCE))
    await log.publish(record(B))
    assert await log.publish(record(B, expected=2), record(A, expected=term, of=FENCE), record(C)) == 5
    await log.publish(record(FENCE, expected=term))
    assert await log.publish(record(B, expected=3), record(A, expected=term, of=FENCE), record(C)) == -WRONG


async def test_a_subject_may_be_written_twice_in_a_batch(log: Store) -> None:
    assert await log.publish(record(A, b"1"), record(A, b"2")) == 2
    assert await log.load() == [2]


async def test_a_batch_may_not_check_a_subject_that_it_has_written(log: Store) -> None:
    await log.publish(record(FENCE))
    assert await log.publish(record(FENCE), record(A, expected=1, of=FENCE)) == -IN_PROCESS
    assert await log.publish(record(A, expected=1, of=FENCE)) == 2


async def test_a_batch_has_at_most_a_thousand_messages(log: Store) -> None:
    assert await log.publish(*[record(A)] * 1000) == 1000
    assert await log.publish(*[record(A)] * 1001) == -TOO_MANY
    assert await log.publish(record(A)) == 1001


async def test_a_load_gives_the_last_of_each_subject_in_order(log: Store) -> None:
    for subject in (A, B, GRANT, A, C, B):
        await log.publish(record(subject))
    await log.publish(tombstone(A))
    assert await log.load() == [5, 6, 7]


async def test_a_purge_takes_what_is_below_its_sequence_on_its_subject(log: Store) -> None:
    for subject in (A, B, A, A):
        await log.publish(record(subject))
    await log.purge(A, 4)
    assert [bool(await log.message(sequence)) for sequence in (1, 2, 3, 4)] == [False, True, False, True]
    assert await log.load() == [2, 4]


async def test_a_purge_of_a_tombstone_leaves_what_was_written_after_it(log: Store) -> None:
    """By a leader that was stopped for a while between its decision and its purge."""
    await log.publish(record(A))
    await log.publish(tombstone(A))
    recreated = await log.publish(record(A))
    await log.purge(A, 2 + 1)
    assert await log.load() == [recreated]


async def test_a_subject_that_was_purged_stands_at_zero_and_sequences_are_not_given_twice(log: Store) -> None:
    await log.publish(record(A))
    await log.publish(tombstone(A))
    await log.purge(A, 3)
    assert await log.load() == []
    assert await log.publish(record(A, expected=2)) == -WRONG
    assert await log.publish(record(A, expected=0)) == 3


async def test_a_malformed_body_is_stored_like_any_other(log: Store) -> None:
    assert await log.publish(record(DOMAIN.subject("shop", "site"), b"\xff{")) == 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[EmbeddedServer]]:
    """Three servers."""
    routes = [free_port() for _ in range(3)]
    servers = []
    for number, port in enumerate(routes):
        others = ",".join(f"nats://127.0.0.1:{other}" for other in routes)
        arguments = ("-n", f"n{number}", "--cluster_name", "test", "--cluster", f"nats://127.0.0.1:{port}")
        servers.append(EmbeddedServer(arguments=(*arguments, "--routes", others)))
        servers[-1].start(tmp_path / f"n{number}")
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
async def replicated(cluster: list[EmbeddedServer]) -> AsyncIterator[Bus]:
    bus = await buses.connect(Settings(nats_url=cluster[0].url, replicas=3), "test", patience=60)
    await _until_it_answers(bus)
    yield bus
    await bus.close()


async def _until_it_answers(bus: Bus) -> None:
    """A cluster has no leader in its first second."""
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        try:
            await streams.ensure(bus)
        except Exception:  # whatever a server without a leader says
            assert asyncio.get_running_loop().time() < deadline, "the cluster has no leader"
            await asyncio.sleep(0.1)
        else:
            return


async def test_a_replicated_log_refuses_concurrent_checks_of_one_subject(replicated: Bus) -> None:
    """And stores nothing of them; one after another they are stored."""
    log = Server(replicated)
    term = await log.publish(record(FENCE))
    fenced = [record(A, b"%d" % number, expected=term, of=FENCE) for number in range(100)]
    answers: Sequence[int] = await asyncio.gather(*(log.publish(message) for message in fenced))
    stored = [answer for answer in answers if answer > 0]
    assert {answer for answer in answers if answer < 0} == {-IN_PROCESS}
    assert len(stored) >= 1
    assert await log.publish(fenced[0]) == term + len(stored) + 1
    assert await log.publish(fenced[1], record(B)) == term + len(stored) + 3
