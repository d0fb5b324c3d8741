"""Quarantine: what the leader of the service that keeps a kind does about a user's record that does not count.

What is decided is `shared.runtime.quarantine`'s, used here as it is; the copies are kept in `Log.rejected`. Nothing may
be restored over a message of which there is no copy.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from shared.runtime import encode, quarantine
from shared.runtime.encode import EXPECTED, RESTORES, Outgoing
from shared.runtime.follower import Message
from shared.service import Version

from .invariants import Violation
from .log import Log
from .wire import Stored


def restoring(log: Log, service: str, bad: Stored, refuses: Callable[[Version], str], now: datetime) -> list[Outgoing]:
    """The notice (which will carry the fence) and the restoring message; nothing where a user was quicker."""
    versions = [
        Message(each.subject, each.sequence, each.at, each.headers, each.body) for each in log.versions_of(bad.subject)
    ]
    restoration = quarantine.plan_restoration(versions, refuses)
    if restoration is None:
        return []
    for index, (message, _) in enumerate(restoration.bad):
        _, copy = quarantine.rejection(restoration, index)
        log.rejected[message.sequence] = copy
    return quarantine.restoring(service, restoration, now)


class WhatIsRejectedIsKept:
    """11: what a restoring message takes the place of is in quarantine, with its reason."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __call__(self, stored: Sequence[Stored]) -> None:
        for message in stored:
            if RESTORES in message.headers and EXPECTED in message.headers:
                copy = self._log.rejected.get(encode.sequence_in(message.headers, EXPECTED))
                if copy is None or copy.subject != message.subject or not copy.problems:
                    raise Violation("11", f"{message.subject} at {message.sequence} restores over what nobody has kept")
