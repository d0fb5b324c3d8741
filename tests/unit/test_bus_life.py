"""A connection over which messages come is alive, though the answers to its pings are late."""

from shared.runtime.bus import Bus
from shared.runtime.settings import Settings


async def test_a_message_is_a_sign_of_life_while_the_pong_waits_behind_it() -> None:
    taken: list[bytes] = []
    client = Bus(Settings(), "test").nc
    client.takers[1] = lambda subject, reply, body, headers: taken.append(body)
    client._pings_outstanding = 2
    await client._process_msg(1, b"steer.node.n1", b"", b"{}", b"")
    assert (taken, client._pings_outstanding) == ([b"{}"], 0)
