"""A commit is one batch of the log, whose first message without an expectation carries the fence."""

from datetime import UTC, datetime

from shared.runtime import records
from shared.runtime.answers import Stored
from shared.runtime.bus import Bus
from shared.runtime.commit import Committer
from shared.runtime.encode import EXPECTED_SUBJECT, outgoing
from shared.runtime.term import term_message
from shared.service import Change
from shared.subjects import SCALE, TERM

APPS = ("cart", "db", "web")


async def test_what_is_decided_together_is_stored_as_one_batch_under_one_fence(bus: Bus) -> None:
    committer = Committer(bus.settings, "scheduler", "one")
    opened = await committer.open_term(term_message("scheduler", "one", 1, 0, datetime.now(UTC)))
    assert isinstance(opened, Stored)
    committer.term = opened.first
    keys = [("shop", app, "production") for app in APPS]
    stored = await committer.commit([outgoing(Change(SCALE, key, None)) for key in keys])
    assert isinstance(stored, Stored)
    messages = [await records.last_message(bus, SCALE.subject(*key)) for key in keys]
    headers = [message.headers or {} for message in messages if message is not None]
    assert [message.sequence for message in messages if message is not None] == list(stored.sequences)
    assert len({each["Nats-Batch-Id"] for each in headers}) == 1
    assert [each["Nats-Batch-Sequence"] for each in headers] == ["1", "2", "3"]
    assert ["Nats-Batch-Commit" in each for each in headers] == [False, False, True]
    assert [each.get(EXPECTED_SUBJECT) for each in headers] == [TERM.subject("scheduler"), None, None]
    await committer.close()
