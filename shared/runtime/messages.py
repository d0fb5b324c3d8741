"""Messages that are no records of the world: log lines, which have to be stored, and telemetry, which has not.

One attempt each: whoever sends decides what a failure means. Every failure is `Unavailable`.
"""

import nats.errors
import orjson

from shared.errors import Unavailable
from shared.runtime.bus import Bus


async def store(bus: Bus, subject: str, body: bytes, identity: str) -> None:
    """Store one message in the stream of its subject; sent again with the same identity, it is stored once."""
    try:
        answer = await bus.request(subject, body, {"Nats-Msg-Id": identity})
    except (TimeoutError, OSError, nats.errors.Error) as error:
        raise Unavailable(f"{subject} was not stored: {error or type(error).__name__}") from error
    result = orjson.loads(answer.data)
    if "error" in result:
        raise Unavailable(f"{subject} was not stored: {result['error'].get('description')}")


async def send(bus: Bus, subject: str, body: bytes) -> None:
    """Send one sample."""
    if not bus.connected.is_set():
        raise Unavailable(f"{subject} was not sent: NATS is away")
    try:
        await bus.publish(subject, body)
    except (TimeoutError, OSError, nats.errors.Error) as error:
        raise Unavailable(f"{subject} was not sent: {error or type(error).__name__}") from error
