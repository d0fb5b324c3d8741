"""What a checker is given, a message of the log as a reader finds it, and what it gives: a breach."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from shared.service import Version


class Logged(NamedTuple):
    """`version` None = it cannot be read, or is no record."""

    sequence: int
    at: datetime
    subject: str
    headers: Mapping[str, str]
    body: bytes
    version: Version | None


class Breach(NamedTuple):
    """What does not hold since the message at `sequence`. `invariant` is its number in the design, or a word."""

    invariant: str
    sequence: int
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.subject} at {self.sequence}: {self.detail}"
