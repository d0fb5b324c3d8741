"""The server's time, as an agent can know it: `not_before` is a time of the server's, not of this host's."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
