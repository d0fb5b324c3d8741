"""Between opening a term and deciding: an instance waits until its own term message has come back to it."""

import asyncio
from datetime import timedelta

from shared.runtime import records, tasks
from shared.runtime.bus import Bus
from shared.runtime.instance import Instance
from shared.subjects import TERM
from tests.integration import toy
from tests.integration.running import ask, counts, eventually

KEY = ("shop", "web", "production")


async def test_nothing_is_decided_before_the_own_term_message_has_been_received(bus: Bus) -> None:
    """What an earlier leader stored lies before it in the log: a decision without it would do things twice. From then on
    telemetry is heard, and anew when the server's clock has jumped: what was heard before is not as old as it seems."""
    instance = Instance(toy.service(), bus, asyncio.Event())
    leader, world = instance.leader, instance.world
    lease = asyncio.create_task(instance.lease.run())
    await eventually(lambda: instance.lease.held)
    world.loaded = True
    asked = await ask(bus, KEY, 1)
    try:
        await leader.step()
        assert leader.term > asked
        for _ in range(3):
            await leader.step()
        assert not _leads(instance)
        for subject in ("steer.environment.shop.web.production", TERM.subject("scheduler")):
            message = await records.last_message(bus, subject)
            assert message is not None
            await world.fold([message], message.sequence)
        await leader.step()
        assert _leads(instance)
        assert await counts(bus, KEY) == [1]
        assert len(world.state.attended) == 1
        assert message is not None
        ahead = message._replace(subject="steer.node.n1", sequence=message.sequence + 10, body=b"{}")
        await world.fold([ahead._replace(at=message.at + timedelta(minutes=1))], ahead.sequence)
        await leader.step()
        assert len(world.state.attended) == 2, "the server's clock has jumped: telemetry counts anew"
    finally:
        await leader.close()
        await tasks.end(lease)
        world.end_load()


def _leads(instance: Instance) -> bool:
    return instance.leader.leading
