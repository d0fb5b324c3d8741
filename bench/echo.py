"""`python -m bench.echo`: answers each instance that has failed with a fenced batch of two. The baseline of `reaction`.

A scheduler that knows nothing and decides nothing, between the same processes, over the same follower and committer.
"""

from datetime import UTC, datetime

import uvloop

from shared import subjects
from shared.model.service import Term
from shared.runtime.answers import Stored
from shared.runtime.bus import connect
from shared.runtime.commit import Committer
from shared.runtime.encode import Outgoing, outgoing
from shared.runtime.follower import Follower, Restarted
from shared.runtime.settings import Settings
from shared.service import Change

SERVICE = "echo"
PADDING = "x" * 700
"""About as long as an assignment and a decision."""


async def main() -> None:
    settings = Settings.from_environment()
    bus = await connect(settings, SERVICE)
    end = (await bus.js.stream_info(subjects.STREAM)).state.last_seq
    follower = Follower(bus, [subjects.INSTANCE.subject_filter], start=end + 1)
    await follower.start()
    committer = Committer(settings, SERVICE, SERVICE)
    term = Term(holder=SERVICE, lease_revision=0, opened_at=datetime.now(UTC))
    opened = await committer.open_term(outgoing(Change(subjects.TERM, (SERVICE,), term, expected=0)))
    assert isinstance(opened, Stored), f"no term: {opened}"
    committer.term = opened.first
    while True:
        batch = await follower.next(None)
        assert not isinstance(batch, Restarted), "the follower had to load anew"
        for message in batch:
            _, (node, name) = subjects.parse(message.subject)
            stored = await committer.commit(_answer(node, name))
            assert isinstance(stored, Stored), f"not stored: {stored}"


def _answer(node: str, name: str) -> list[Outgoing]:
    """Two messages, the first of which names what it replaces."""
    body = f'{{"replaces":"{name}","padding":"{PADDING}"}}'.encode()
    keys = (subjects.ASSIGNMENT, (node, f"{name}-next")), (subjects.DECISION, (SERVICE, "instance", name))
    return [Outgoing(kind, key, kind.subject(*key), body, None) for kind, key in keys]


if __name__ == "__main__":
    uvloop.run(main())
