"""The time of a service: a monotonic clock anchored to the server's. Pure: the caller brings the monotonic reading.

What the simulator relies on: `now` never goes back within a term and is never behind the newest timestamp received.
A host's wall clock decides nothing.
"""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JUMP = timedelta(seconds=2)
"""Farther than a timestamp that was on its way can be ahead: the server's clock was set, or another server took over."""


class ServiceClock:
    """`anchor` at the own term message, `received` for every other timestamp, `now` for what a decision is given."""

    def __init__(self) -> None:
        self._anchor = EPOCH
        self._reading = 0.0
        self._newest = EPOCH
        self._jumped = False

    def anchor(self, at: datetime, reading: float) -> None:
        """`at` is the server's timestamp of the own term message, `reading` the monotonic clock when it arrived."""
        self._anchor, self._reading = at, reading
        self._newest = max(self._newest, at)
        self._jumped = False

    def received(self, at: datetime, reading: float) -> None:
        """A timestamp of the server that is ahead of this clock moves it."""
        if at <= self._newest:
            return
        self._newest = at
        ahead = at - self._anchor - timedelta(seconds=reading - self._reading)
        if ahead > timedelta():
            self._anchor, self._reading = at, reading
            self._jumped = self._jumped or ahead > JUMP

    def jumped(self) -> bool:
        """Whether it has jumped ahead since this was asked last: what was heard before is not as old as it seems."""
        jumped, self._jumped = self._jumped, False
        return jumped

    def now(self, reading: float) -> datetime:
        return max(self._anchor + timedelta(seconds=reading - self._reading), self._newest)

    def seconds_until(self, when: datetime, reading: float) -> float:
        """How long to sleep until this clock shows `when`; not negative."""
        return max(0.0, (when - self.now(reading)).total_seconds())
