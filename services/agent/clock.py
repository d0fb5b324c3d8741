"""The two clocks of an agent. Neither follows a jump of the host's wall clock.

`not_before` is a time of the server's, so it is compared with what is known of that. When a state began is told by this
host's time; what counts there is the difference between two such times.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SteadyClock:
    """This host's time as it was when the agent started, and what the monotonic clock has counted since."""

    def __init__(self) -> None:
        self._started = datetime.now(UTC)
        self._started_at = time.monotonic()

    def now(self) -> datetime:
        return self._started + timedelta(seconds=time.monotonic() - self._started_at)


class ServerClock:
    """The newest timestamp heard and what the monotonic clock has counted since: never ahead of the server's clock.

    It is behind where the newest message was old already. A wait counted with it is then longer, never shorter.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._heard = _EPOCH
        self._heard_at = monotonic()

    def hear(self, at: datetime) -> None:
        """A message with the server's timestamp `at` has just been received."""
        if at > self.now():
            self._heard, self._heard_at = at, self._monotonic()

    def now(self) -> datetime:
        return self._heard + timedelta(seconds=self._monotonic() - self._heard_at)
