"""What must hold at every prefix of the log (RELIABILITY.md), and what must hold once all is quiet.

A checker is called with every publish and every batch as it is stored. It keeps its own small view of the world, so that
it shares no mistake with the services.
"""

from collections.abc import Sequence

from shared.runtime import encode

from .log import Log
from .wire import Stored


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class TermsNeverGoBack:
    """1: per service, the terms of what is stored never go back."""

    def __init__(self, log: Log) -> None:
        self._newest: dict[str, int] = {}

    def __call__(self, stored: Sequence[Stored]) -> None:
        for message in stored:
            term = message.headers.get(encode.TERM)
            if term is None:
                continue
            service = message.headers[encode.SERVICE]
            if int(term) < self._newest.get(service, 0):
                raise Violation(
                    "terms", f"{message.subject} at {message.sequence} is of term {term} of {service}, "
                    f"after one of term {self._newest[service]}"
                )  # fmt: skip
            self._newest[service] = int(term)
