"""A question to all four services at once that only a leader answers: a record that nobody can read.

Each service keeps some kinds; its leader commits, under its term, that the bad version does not rule.
"""

from functools import partial

from shared.errors import Unavailable
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.encode import RESTORES
from shared.runtime.messages import store
from shared.subjects import BUILD_POOL, DOMAIN, ENVIRONMENT, FUNCTION, Key, Kind
from tests.integration.running import eventually


def bad_records(name: str) -> dict[Kind, Key]:
    """One of each service."""
    return {ENVIRONMENT: (name, name, name), FUNCTION: (name, name), BUILD_POOL: (name,), DOMAIN: (name, name)}


async def publish_bad_records(bus: Bus, name: str) -> None:
    for kind, key in bad_records(name).items():
        await store(bus, kind.subject(*key), b"{", f"{kind.name} {name}")


async def everybody_answers(bus: Bus, name: str) -> None:
    """Wait until the leader of each service has answered what was published under this name."""
    for kind, key in bad_records(name).items():
        await eventually(partial(_answered, bus, kind.subject(*key)), 60)


async def _answered(bus: Bus, subject: str) -> bool:
    try:
        message = await records.last_message(bus, subject)
    except Unavailable:  # the log elects its leader
        return False
    return message is not None and RESTORES in (message.headers or {})
