"""Requests of a day, from a seed, and how they are served: diurnal callers, bursts, and some that come now and then.

Time goes in seconds. A replica serves `concurrency` requests at a time (0 = any number); what finds no room is parked,
and lost after a minute. A request that arrives where nothing is healthy is a cold start.
"""

import csv
import heapq
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

DAY_SECONDS = 86_400
HOLD_SECONDS = 60
"""How long a parked request is held before it is turned away."""

Request = tuple[int, float]
"""When it arrives, and how many seconds it takes."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One environment and all requests it gets, in order; `to_zero` = nothing need run while nobody calls."""

    name: str
    requests: tuple[Request, ...]
    concurrency: int
    idle_timeout_seconds: int
    most: int = 40
    to_zero: bool = True


def callers(seed: int, seconds: int = DAY_SECONDS, each: int = 8) -> list[Caller]:
    """`each` environments of every kind."""
    random = Random(seed)
    found = []
    for number in range(each):
        phase, peak = random.uniform(0, DAY_SECONDS), random.uniform(1, 5)
        diurnal = (_diurnal(at, phase, peak) for at in range(seconds))
        found.append(Caller(f"diurnal-{number}", _requests(random, diurnal, 3.0), 5, 300, to_zero=False))
        bursts = _requests(random, _bursts(random, seconds), 2.0)
        found.append(Caller(f"burst-{number}", bursts, 5, 120, to_zero=number % 2 == 0))
        concurrency = 10 if number % 2 else 0
        found.append(Caller(f"sparse-{number}", _sparse(random, seconds), concurrency, 300))
    return found


def trace(path: Path) -> list[Caller]:
    """The applications of a recorded trace of functions: app, func, end and duration in seconds."""
    by_app: dict[str, list[Request]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            began = max(0.0, float(row["end_timestamp"]) - float(row["duration"]))
            by_app.setdefault(row["app"][:16], []).append((int(began), max(0.01, float(row["duration"]))))
    return [Caller(app, tuple(sorted(requests)), 1, 60) for app, requests in sorted(by_app.items())]


def _diurnal(at: int, phase: float, peak: float) -> float:
    return peak * max(0.02, math.sin(2 * math.pi * (at + phase) / DAY_SECONDS)) ** 2


def _bursts(random: Random, seconds: int) -> Iterator[float]:
    """Quiet, then now and then a few minutes of ten requests a second."""
    until = 0
    for at in range(seconds):
        if at >= until and random.random() < 1 / 5400:
            until = at + random.randint(60, 300)
        yield 10.0 if at < until else 0.01


def _requests(random: Random, rates: Iterator[float], mean_seconds: float) -> tuple[Request, ...]:
    found = []
    for at, rate in enumerate(rates):
        for _ in range(_poisson(random, rate)):
            found.append((at, random.expovariate(1 / mean_seconds)))
    return tuple(found)


def _sparse(random: Random, seconds: int) -> tuple[Request, ...]:
    found, at = [], random.uniform(0, 3600)
    while at < seconds:
        found.append((int(at), random.uniform(0.1, 5)))
        at += random.uniform(300, 5400)
    return tuple(found)


def _poisson(random: Random, rate: float) -> int:
    limit, product, count = math.exp(-rate), random.random(), 0
    while product > limit:
        product *= random.random()
        count += 1
    return count


@dataclass(slots=True)
class Serving:
    """One environment under load: what is in flight, what is parked, and what became of the rest."""

    caller: Caller
    healthy: int = 0
    cold: int = 0
    held: int = 0
    lost: int = 0
    served: int = 0
    last_request_at: int | None = None
    _next: int = 0
    _ends: list[float] = field(default_factory=list)
    _parked: deque[Request] = field(default_factory=deque)

    @property
    def inflight(self) -> int:
        return len(self._ends)

    @property
    def parked(self) -> int:
        return len(self._parked)

    def step(self, now: int) -> bool:
        """One second; whether requests wait though nothing is healthy."""
        while self._ends and self._ends[0] <= now:
            heapq.heappop(self._ends)
            self.served += 1
        requests = self.caller.requests
        while self._next < len(requests) and requests[self._next][0] <= now:
            self._parked.append((now, requests[self._next][1]))
            self._next += 1
            self.last_request_at = now
            self.cold += not self.healthy
        room = self.healthy * (self.caller.concurrency or 1000) - len(self._ends)
        while self._parked and room > 0:
            at, seconds = self._parked.popleft()
            heapq.heappush(self._ends, now + seconds)
            self.held += at < now
            room -= 1
        while self._parked and now - self._parked[0][0] >= HOLD_SECONDS:
            self._parked.popleft()
            self.lost += 1
        return bool(self._parked) and not self.healthy

    @property
    def done(self) -> bool:
        return self._next == len(self.caller.requests) and not self._ends and not self._parked


@dataclass(slots=True)
class Course:
    """How wide an environment was over time."""

    changes: list[tuple[int, int]] = field(default_factory=list)
    replica_seconds: int = 0
    _width: int = 0

    def note(self, now: int, width: int, running: int) -> None:
        """`width` is the number that is wanted, `running` what there is and costs."""
        if width != self._width:
            self.changes.append((now, width - self._width))
            self._width = width
        self.replica_seconds += running

    @property
    def turns(self) -> int:
        """How often it went up, down and up again, or the other way, within a minute."""
        signs = [(at, delta > 0) for at, delta in self.changes]
        turned = [signs[i] for i in range(len(signs)) if i == 0 or signs[i][1] != signs[i - 1][1]]
        return sum(later[0] - earlier[0] <= 60 for earlier, later in zip(turned, turned[2:], strict=False))
