"""Requests that ask for too much, or for an answer that nobody takes: refused, and the others are answered."""

import asyncio
from collections import Counter

from shared.runtime import records
from shared.runtime.api import MAX_QUESTION_BYTES, MOST_ASKED
from shared.runtime.bus import Bus
from shared.runtime.commands import MOST_WAITING
from shared.subjects import api
from tests.integration.running import Start, counts, eventually

QUESTION, COMMAND = api("scheduler", "counted"), api("scheduler", "skip")
FAR = b'{"environment":"a/b/c","at_least_sequence":1000000}'
EXTRA = 10


async def reason(bus: Bus, subject: str, body: bytes) -> str:
    answer = await bus.request(subject, body, within=60)
    return (answer.headers or {}).get("Nats-Service-Error", "answered")


async def test_a_request_without_an_inbox_is_nobodys_and_the_leader_goes_on(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    for subject in (QUESTION, COMMAND):
        for reply in ("", "$JS.API.STREAM.PURGE.STEER", "steer.term.scheduler", "steer.node.n1"):
            for body in (b"{}", b"{", b'{"environment":"a/b/c"}'):
                await bus.publish(subject, body, reply=reply)
    answer = await records.request(bus, COMMAND, {"environment": "a/b/c"}, 60)
    assert answer["result"] == {"counted": 1}
    assert await counts(bus, ("a", "b", "c")) == [1]
    assert one.leading
    assert one.instance._faults == 0


async def test_a_large_request_is_refused(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    large = b'{"environment":"' + b"x" * MAX_QUESTION_BYTES + b'"}'
    deep = b'{"environment":' + b"[" * 100 + b"]" * 100 + b"}"
    for subject in (QUESTION, COMMAND):
        assert "at most" in await reason(bus, subject, large)
        assert "deep" in await reason(bus, subject, deep)


async def test_requests_that_wait_are_counted_and_do_not_wait_for_ever(bus: Bus, start: Start) -> None:
    one = await start(lease_ttl_seconds=600)  # to renew it has to wait its turn among all these
    await eventually(lambda: one.leading)
    asking = [reason(bus, QUESTION, FAR) for _ in range(MOST_ASKED + EXTRA)]
    asking += [reason(bus, COMMAND, FAR) for _ in range(MOST_WAITING + EXTRA)]
    reasons = Counter(each.partition(" ")[0] for each in await asyncio.gather(*asking))
    assert reasons == {"the": MOST_ASKED + MOST_WAITING, "too": 2 * EXTRA}
    reply = await records.request(bus, COMMAND, {"environment": "a/b/c"}, 60)
    assert reply["result"] == {"counted": 1}
