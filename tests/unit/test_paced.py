"""What is asked for often is done seldom, but never forgotten."""

import asyncio

from shared.runtime.paced import Paced


async def test_many_requests_are_one_action_and_a_later_one_is_another() -> None:
    done: asyncio.Queue[None] = asyncio.Queue()

    async def action() -> None:
        await done.put(None)

    paced = Paced(action, at_most_every=0.01)
    for _ in range(100):
        paced.soon()
    paced.start()
    await asyncio.wait_for(done.get(), 60)
    paced.soon()
    await asyncio.wait_for(done.get(), 60)
    await paced.stop()
    assert done.empty()


async def test_an_action_that_fails_is_tried_at_the_next_request() -> None:
    calls: asyncio.Queue[int] = asyncio.Queue()

    async def action() -> None:
        await calls.put(1)
        raise OSError("no space left")

    paced = Paced(action, at_most_every=0.001, at_least_every=0.001)
    paced.start()
    for _ in range(3):
        await asyncio.wait_for(calls.get(), 60)
    await paced.stop()
