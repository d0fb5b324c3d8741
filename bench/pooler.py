"""Pools of functions, decision only: all of them keyed and placed from empty, and then one edit. No log, no server.

Half of the pools are full and have functions that wait. What a pass decides is folded and settled, and passes follow
until one is empty, as a service does it; an edit counts with all that follows from it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import median
from time import perf_counter

from bench.harness import Figure, Options, Row, growth, median_of, percentile, quiet
from services.pooler.decide import decide
from services.pooler.state import fold, settle
from services.pooler.world import State
from shared import subjects
from shared.model.function import Function, FunctionAccess, KvBinding, Pooling
from shared.model.pool import PoolingPolicy, Runtime
from shared.model.run import PortSpec, RunSpec
from shared.service import Version
from shared.subjects import Key, Kind

NAMESPACES = 100
LIMIT = 16
GROUPS = (8, 20)
"""How many functions declare one pool: half of them fit, the others leave four waiting."""
EDITS = 1000
NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOST = Runtime(run=RunSpec(image="host", command=("host",), ports=(PortSpec(name="http", container_port=80),)))


class Log:
    """A state, and the sequence of what it was told last."""

    def __init__(self, functions: int) -> None:
        self.state = State()
        self.sequence = 0
        self.now = NOW
        self.functions = _functions(functions)
        self.put(subjects.RUNTIME, ("python",), HOST)
        for number in range(NAMESPACES):
            self.put(subjects.POOLING_POLICY, (f"ns-{number}",), PoolingPolicy(limit=LIMIT))

    def put(self, kind: Kind, key: Key, record: object) -> None:
        self.sequence += 1
        fold(self.state, Version(kind, key, self.sequence, record, self.now))  # type: ignore[arg-type]

    def rest(self) -> int:
        """Passes until nothing is left; how many records they wrote."""
        written = 0
        while True:
            plan = decide(self.state, self.now)
            for decision in plan.decisions:
                for change in decision.changes:
                    self.put(change.kind, change.key, change.record)
                    written += 1
            settle(self.state, plan, self.now)
            if not plan.decisions and (plan.wake_at is None or plan.wake_at > self.now):
                return written

    def fill(self) -> None:
        for key, function in self.functions:
            self.put(subjects.FUNCTION, key, function)


def run(options: Options) -> Iterable[Row]:
    functions = options.size(100_000, 10_000)
    size = f"{functions:,} functions in {NAMESPACES} namespaces"
    rate = median_of(options.runs, lambda: _from_empty(functions))
    yield Figure("pooler, keyed and placed from empty", rate, "/s", size, target="≥ 30,000/s", met=rate >= 30_000)
    p50, p99 = _edits(functions, options)
    yield Figure("pooler, one edit, p50", p50 * 1e3, "ms", size, target="≤ 1 ms", met=p50 <= 1e-3)
    yield Figure("pooler, one edit, p99", p99 * 1e3, "ms", size, aim="≤ 1 ms", aim_met=p99 <= 1e-3)
    small_p50, _ = _edits(functions // 10, options)
    yield growth("pooler, one edit", p50, small_p50, size)


def _functions(count: int) -> list[tuple[Key, Function]]:
    found: list[tuple[Key, Function]] = []
    pool = 0
    while len(found) < count:
        for index in range(min(GROUPS[pool % len(GROUPS)], count - len(found))):
            key = (f"ns-{pool % NAMESPACES}", f"f-{pool}-{index}")
            found.append((key, _function(pool, "v1")))
        pool += 1
    Random(1).shuffle(found)
    return found


def _function(pool: int, artifact: str) -> Function:
    return Function(
        runtime="python",
        handler="main.handle",
        artifact=artifact,
        pooling=Pooling(worker=f"w-{pool}"),
        kv=(
            KvBinding(alias="open", store="orders", table="open"),
            KvBinding(alias="done", store="orders", table="done"),
        ),
        secrets=("smtp",),
    )


def _from_empty(functions: int) -> float:
    """Functions per second, from records to placements."""
    log = Log(functions)
    with quiet():
        before = perf_counter()
        log.fill()
        log.rest()
        took = perf_counter() - before
    assert len(log.state.tables[subjects.PLACEMENT]) == functions
    return functions / took


def _edits(functions: int, options: Options) -> tuple[float, float]:
    """p50 and p99 in seconds over a thousand edits of code, of grants and of who is there; medians of the runs."""
    log = Log(functions)
    log.fill()
    log.rest()
    results = [_one_run(log, number) for number in range(options.runs + 1)]
    return median(p50 for p50, _ in results[1:]), median(p99 for _, p99 in results[1:])


def _one_run(log: Log, number: int) -> tuple[float, float]:
    samples: list[float] = []
    with quiet():
        for index, (key, function) in enumerate(Random(number).sample(log.functions, min(EDITS, len(log.functions)))):
            log.now += timedelta(seconds=120)  # turns are free again
            change: tuple[Kind, object] = (
                subjects.FUNCTION,
                function.model_copy(update={"artifact": f"v{number + 2}"}),
            )
            if index % 3 == 1:
                change = (subjects.ACCESS, FunctionAccess(grants=(f"group/g{number}",)))
            elif index % 3 == 2:
                change = (subjects.FUNCTION, None)
            before = perf_counter()
            log.put(change[0], key, change[1])
            log.rest()
            samples.append(perf_counter() - before)
            if change == (subjects.FUNCTION, None):
                log.put(subjects.FUNCTION, key, function)
                log.rest()
    return median(samples), percentile(samples, 0.99)
