"""Which trace a record belongs to (`traceparent`, W3C Trace Context), so that what follows from it is part of the same.

A record that comes with the header hands it to every record whose cause it is, and so on. Of a trace only what is recent
is known: nothing depends on it.
"""

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
MOST = 10_000
_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Traces:
    """The traces of the newest records that have one, by sequence."""

    def __init__(self) -> None:
        self._found: dict[int, str] = {}

    def received(self, sequence: int, headers: Mapping[str, str] | None) -> None:
        """A record has come; a header that is none of the standard's form is dropped."""
        trace = headers.get(TRACEPARENT) if headers is not None else None
        if trace and _FORM.fullmatch(trace):
            self._remember(sequence, trace)

    def led_to(self, cause: int, sequence: int) -> None:
        """The record at `cause` has led to the one at `sequence`."""
        if cause in self._found:
            self._remember(sequence, self._found[cause])

    def of(self, cause: int) -> str:
        """The trace of a record; empty where it has none."""
        return self._found.get(cause, "")

    def _remember(self, sequence: int, trace: str) -> None:
        if len(self._found) >= MOST:
            del self._found[next(iter(self._found))]
        self._found[sequence] = trace
