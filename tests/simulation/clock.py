"""Virtual time: a queue of what happens next.

Nothing here sleeps. Actions at the same moment run in the order in which they were planned, so a run has no choice of
its own: every choice is the seed's.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], None]

START = datetime(2030, 1, 1, tzinfo=UTC)


class Timeline:
    """`now` moves only while `run` takes the next action, and never back."""

    def __init__(self) -> None:
        self._micros = 0
        self._queue: list[tuple[int, int, Action]] = []
        self._order = count()
        self._server_ahead = timedelta()

    @property
    def server_now(self) -> datetime:
        """What the clock of the log's server shows: it may jump ahead, never back."""
        return self.now + self._server_ahead

    def jump_server(self, seconds: float) -> None:
        self._server_ahead += timedelta(seconds=seconds)

    @property
    def now(self) -> datetime:
        return START + timedelta(microseconds=self._micros)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._micros / 1e6

    def after(self, seconds: float, action: Action) -> None:
        """Plan an action; a delay below zero is none."""
        heappush(self._queue, (self._micros + max(0, round(seconds * 1e6)), next(self._order), action))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let that much time pass. Stops early, with True, once `until` holds (looked at after every action)."""
        end = self._micros + round(seconds * 1e6)
        while self._queue and self._queue[0][0] <= end:
            self._micros, _, action = heappop(self._queue)
            action()
            if until is not None and until():
                return True
        self._micros = end
        return until is not None and until()
