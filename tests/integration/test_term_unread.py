"""A term opened by another instance, which this one has not read yet."""

import asyncio

from shared.runtime import tasks
from shared.runtime.bus import Bus
from shared.runtime.instance import Instance
from shared.runtime.records import last_message
from shared.subjects import TERM
from tests.integration import toy
from tests.integration.running import eventually


async def test_a_term_that_was_refused_is_tried_again_when_the_newer_one_has_been_read(bus: Bus) -> None:
    """In a flood that takes a while; every try before is in vain."""
    instance = Instance(toy.service(), bus, asyncio.Event())
    leader, world, subject = instance.leader, instance.world, TERM.subject("scheduler")
    tries: list[bytes] = []
    await bus.take(subject, lambda name, reply, body, headers: tries.append(body))
    await bus.nc.flush()
    lease = asyncio.create_task(instance.lease.run())
    await eventually(lambda: instance.lease.held)
    world.loaded = True
    await bus.js.publish(subject, b"{}")
    try:
        for _ in range(5):
            await leader.step()
        await bus.nc.flush()
        assert len(tries) == 2, "the other's, and one of its own"
        assert not leader.term
        message = await last_message(bus, subject)
        assert message is not None
        await world.fold([message], message.sequence)
        await leader.step()
        assert leader.term > message.sequence
    finally:
        await leader.close()
        await tasks.end(lease)
        world.end_load()
