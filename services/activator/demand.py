"""Counts of requests, by environment → what is reported. Pure: times are arguments.

`inflight` and `parked` are of now; rates and latencies are of a window of five seconds, the last one that is complete.
Requests that were turned away for lack of room count as parked once, in the next sample.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from shared.model.live import Demand

WINDOW_SECONDS = 5.0
LATENCIES = 512
NOTICEABLE = 0.1


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    errors: int = 0
    turned_away: int = 0
    last_request_at: datetime | None = None
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    rps: float = 0.0
    error_rate: float = 0.0


class Counter:
    """What came in and went out since the start."""

    def __init__(self) -> None:
        self._by_environment: dict[str, _Counts] = {}
        self._window_began: float | None = None
        self._reported: dict[str, int] = {}

    def arrived(self, environment: str, at: datetime) -> None:
        counts = self._by_environment.setdefault(environment, _Counts())
        counts.requests += 1
        counts.last_request_at = at

    def turned_away(self, environment: str) -> None:
        self._by_environment.setdefault(environment, _Counts()).turned_away += 1

    def answered(self, environment: str, status: int, seconds: float) -> None:
        """`seconds` from the moment an endpoint had the request, which may be the last that its environment had."""
        counts = self._by_environment.get(environment)
        if counts is not None:
            counts.errors += status >= 500
            counts.latencies_ms.append(seconds * 1000)

    def forget(self, environments: Iterable[str]) -> None:
        """No route leads to these any more."""
        for name in environments:
            self._by_environment.pop(name, None)

    def sample(self, inflight: Mapping[str, int], parked: Mapping[str, int], now: float) -> dict[str, Demand]:
        """The demand by environment at `now`, on a monotonic clock."""
        self._roll(now)
        names = sorted({*self._by_environment, *inflight, *parked})
        found = {name: self._demand(name, inflight.get(name, 0), parked.get(name, 0)) for name in names}
        self._reported = {name: demand.inflight + demand.parked for name, demand in found.items()}
        return found

    def noticeable(self, environment: str, total: int) -> bool:
        """Whether the load is so different from what was reported that it should be said at once."""
        before = self._reported.get(environment, 0)
        return abs(total - before) >= max(1.0, NOTICEABLE * before)

    def _demand(self, name: str, inflight: int, parked: int) -> Demand:
        counts = self._by_environment.get(name, _Counts())
        turned_away, counts.turned_away = counts.turned_away, 0
        ordered = sorted(counts.latencies_ms)
        return Demand(
            inflight=inflight,
            parked=parked + turned_away,
            rps=counts.rps,
            error_rate=counts.error_rate,
            latency_p50_ms=ordered[len(ordered) // 2] if ordered else 0,
            latency_p99_ms=ordered[min(99 * len(ordered) // 100, len(ordered) - 1)] if ordered else 0,
            last_request_at=counts.last_request_at,
        )

    def _roll(self, now: float) -> None:
        if self._window_began is None:
            self._window_began = now
        elapsed = now - self._window_began
        if elapsed < WINDOW_SECONDS:
            return
        self._window_began = now
        for counts in self._by_environment.values():
            counts.rps = counts.requests / elapsed
            counts.error_rate = min(1.0, counts.errors / counts.requests) if counts.requests else 0.0
            counts.requests = counts.errors = 0
