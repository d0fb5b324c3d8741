"""How a process comes to know the log: the last version of every subject, then what is stored after, late and in pieces.

A message that is purged before its turn is never delivered, as with a consumer of the real server. That others have
been stored, of kinds that are not followed, is known by the next heartbeat.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random

from shared.subjects import Kind

from .log import Log
from .process import Process
from .wire import Stored

QUICK = (0.0003, 0.01)
SLOW = (0.2, 4.0)
HEARTBEAT_SECONDS = 0.5
NEVER = float("inf")


class Follower:
    """`deliver` gets each message in order; `caught_up` is called once, after the load. `position` covers what came."""

    def __init__(self, log: Log, random: Random, kinds: Iterable[Kind]) -> None:
        self._log = log
        self._random = random
        self._kinds = frozenset(kinds)
        self._process: Process | None = None
        self._pump_at = NEVER
        self._load: list[int] = []
        self._loading = False
        self.delay_seconds = QUICK
        self.position = 0
        log.watch(self._stored)

    def start(self, process: Process, deliver: Callable[[Stored], None], caught_up: Callable[[], None]) -> None:
        """Load and follow, for the present life of the process."""
        self._process, self._deliver, self._caught_up = process, deliver, caught_up
        self._load = self._log.last_per_subject(self._kinds)[::-1]
        self._loading = True
        self.position = 0
        self._end_of_load = self._log.last_sequence
        self._pump_at = NEVER
        self._pump_later()

    def stop(self) -> None:
        self._process = None

    @property
    def behind(self) -> bool:
        """Whether something that is followed was stored and has not come yet."""
        rest = (self._log.get(sequence) for sequence in range(self.position + 1, self._log.last_sequence + 1))
        return self._loading or any(stored is not None and stored.kind in self._kinds for stored in rest)

    def _stored(self, messages: Sequence[Stored]) -> None:
        if self._process is not None and self._process.up:
            if any(message.kind in self._kinds for message in messages):
                self._pump_later()
            elif self._pump_at is NEVER:
                self._pump_in(HEARTBEAT_SECONDS)

    def _pump_later(self) -> None:
        """What is planned earlier serves."""
        if self._process is not None and self._pump_at > self._process.timeline.seconds + self.delay_seconds[1]:
            self._pump_in(self._random.uniform(*self.delay_seconds))

    def _pump_in(self, seconds: float) -> None:
        assert self._process is not None
        self._pump_at = at = self._process.timeline.seconds + seconds
        self._process.later(seconds, lambda: self._pump(at))

    def _pump(self, at: float) -> None:
        if at != self._pump_at:
            return
        self._pump_at = NEVER
        if self._loading:
            self._pump_load()
        else:
            self._pump_tail()

    def _pump_load(self) -> None:
        for _ in range(self._piece(len(self._load))):
            stored = self._log.get(self._load.pop())
            if stored is not None:
                self.position = stored.sequence
                self._deliver(stored)
        if self._load:
            self._pump_later()
            return
        self.position = self._end_of_load
        self._loading = False
        self._pump_later()
        self._caught_up()

    def _pump_tail(self) -> None:
        end = self.position + self._piece(self._log.last_sequence - self.position)
        while self.position < end:
            self.position += 1
            stored = self._log.get(self.position)
            if stored is not None and stored.kind in self._kinds:
                self._deliver(stored)
        if self.position < self._log.last_sequence:
            self._pump_later()

    def _piece(self, waiting: int) -> int:
        """Mostly all that waits, now and then only a part, so that half of a batch is seen alone."""
        if waiting > 1 and self._random.random() < 0.25:
            return self._random.randint(1, waiting)
        return waiting
