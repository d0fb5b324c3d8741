"""How figures are taken: warm-up, then runs whose median counts; p99 over at least 1,000 samples; a baseline beside it.

The ratio to the baseline of the same run is what counts: it survives another machine. Absolute targets are meant for a
quiet machine with two cores.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

RUNS = 5


@dataclass(frozen=True, slots=True)
class Options:
    """`quick` is a look in passing: smaller, fewer, and no verdict."""

    quick: bool = False

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @property
    def runs(self) -> int:
        return 1 if self.quick else RUNS


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    `ratio` is how many times better than the baseline, unless `target` says otherwise. `met` None = no target.
    """

    figure: str
    value: float
    unit: str
    size: str
    baseline: float | None = None
    ratio: float | None = None
    target: str = ""
    aim: str = ""
    met: bool | None = None
    aim_met: bool | None = None

    def without_verdict(self) -> "Figure":
        """As a look in passing: a small size proves nothing about what must be reached."""
        return replace(self, met=None, aim_met=None)


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A row that could not be taken, and why."""

    figure: str
    why: str


Row = Figure | Unmeasured
Group = Callable[[Options], Iterable[Row]]


def percentile(samples: Iterable[float], share: float) -> float:
    """The smallest sample that at least `share` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, min(len(ordered) - 1, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


@contextmanager
def quiet() -> Iterator[None]:
    """Without the garbage collector, as a service that has frozen what it loaded."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    before = perf_counter()
    work()
    return perf_counter() - before


def median_of(runs: int, measure: Callable[[], float], warm_up: int = 1) -> float:
    """The median of `runs` measurements, after some that do not count."""
    for _ in range(warm_up):
        measure()
    return median(measure() for _ in range(runs))


def growth(figure: str, full: float, tenth: float, size: str, limit: float = 2.0) -> Figure:
    """How much more one decision costs at ten times the size."""
    factor = full / tenth
    name = f"{figure}: cost at ten times the size"
    return Figure(name, factor, "×", size, target=f"≤ {limit:g}×", met=factor <= limit)
