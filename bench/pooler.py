"""Pools of functions: all of them keyed and placed from empty, and then one edit. No log, no server.

What counts is the time of the service itself: it folds the records of users, which gives each function its key, decides
and settles, until nothing is left to decide. Decoding, encoding and the commit are the runtime's, and no part of it. What
was decided is folded too, explanations included; all from empty is measured without that, which comes after a commit, and
with it. An edit counts with all that follows from it at that time, its own records folded; what it leaves for a minute
later, when a pool lets go of a function that has gone to another, is a figure of its own.

Half of the pools are full and have functions that wait.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import median
from time import perf_counter

from pydantic import BaseModel

from bench.harness import Figure, Options, Row, growth, percentile, quiet
from services.pooler.decide import decide
from services.pooler.state import fold, settle
from services.pooler.world import SERVICE, State
from shared import subjects
from shared.model.function import Function, FunctionAccess, KvBinding, Pooling
from shared.model.pool import PoolingPolicy, Runtime
from shared.model.run import PortSpec, RunSpec
from shared.runtime.encode import messages
from shared.service import Version
from shared.subjects import Key, Kind

NAMESPACES = 100
LIMIT = 16
GROUPS = (8, 20)
"""How many functions declare one pool: half of them fit, the others leave four waiting."""
EDITS = 1000
EDIT_GROWTH = 1.2
"""An edit costs the size of its pool, not that of the world."""
NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOST = Runtime(run=RunSpec(image="host", command=("host",), ports=(PortSpec(name="http", container_port=80),)))


class Log:
    """A state, the sequence of what it was told last, and how long the service took so far."""

    def __init__(self, functions: int) -> None:
        self.state = State()
        self.sequence = 0
        self.now = NOW
        self.took = self.own = 0.0
        """Seconds of the service, and seconds of these in which it folded its own records."""
        self.functions = _functions(functions)
        self.put((subjects.RUNTIME, ("python",), HOST))
        self.put(*((subjects.POOLING_POLICY, (f"ns-{it}",), PoolingPolicy(limit=LIMIT)) for it in range(NAMESPACES)))

    def put(self, *records: tuple[Kind, Key, BaseModel | None]) -> None:
        versions = []
        for kind, key, record in records:
            self.sequence += 1
            versions.append(Version(kind, key, self.sequence, record, self.now))
        before = perf_counter()
        for version in versions:
            fold(self.state, version)
        self.took += perf_counter() - before

    def rest(self) -> None:
        """Passes until nothing is left."""
        while True:
            before = perf_counter()
            plan = decide(self.state, self.now)
            self.took += perf_counter() - before
            written = messages(SERVICE, plan, self.sequence, self.now)
            took = self.took
            self.put(*((message.kind, message.key, message.record) for message in written))
            self.own += self.took - took
            before = perf_counter()
            settle(self.state, plan, self.now)
            self.took += perf_counter() - before
            if not plan.decisions and (plan.wake_at is None or plan.wake_at > self.now):
                return

    def fill(self) -> None:
        self.put(*((subjects.FUNCTION, key, function) for key, function in self.functions))

    def edit(self, key: Key, kind: Kind, record: BaseModel | None) -> float:
        """How long the service takes for one record of a user and all that follows from it."""
        self.took = 0.0
        self.put((kind, key, record))
        self.rest()
        return self.took

    def wait(self) -> float:
        """Time goes on until every pool may change again: how long the service takes for what is due."""
        self.took = 0.0
        self.now += timedelta(seconds=120)
        self.rest()
        return self.took


def run(options: Options) -> Iterable[Row]:
    functions = options.size(100_000, 10_000)
    size, small = (f"{count:,} functions in {NAMESPACES} namespaces" for count in (functions, functions // 10))
    rate, whole = _from_empty(functions, options)
    yield Figure("pooler, keyed and placed from empty", rate, "/s", size, target="≥ 30,000/s", met=rate >= 30_000)
    yield Figure("pooler, the same and its own records folded", whole, "/s", size)
    tenth, small_whole = _from_empty(functions // 10, options)
    yield Figure("pooler, keyed and placed from empty", tenth, "/s", small)
    yield growth("pooler, keyed and placed from empty", 1 / whole, 1 / small_whole, size)
    (p50, p99), later = _edits(functions, options)
    yield Figure("pooler, one edit, p50", p50 * 1e3, "ms", size, target="≤ 1 ms", met=p50 <= 1e-3)
    yield Figure("pooler, one edit, p99", p99 * 1e3, "ms", size, target="≤ 1 ms", met=p99 <= 1e-3)
    yield Figure("pooler, what one edit leaves for later, p99", later * 1e3, "ms", size)
    (small_p50, small_p99), _ = _edits(functions // 10, options)
    yield Figure("pooler, one edit, p99", small_p99 * 1e3, "ms", small)
    yield growth("pooler, one edit", p50, small_p50, size, EDIT_GROWTH)


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


def _from_empty(functions: int, options: Options) -> tuple[float, float]:
    """Functions per second, from records to placements that are decided; and that are folded again."""
    runs = [_one_fill(functions) for _ in range(options.runs + 1)]
    decided, folded = (median(values) for values in zip(*runs[1:], strict=True))
    return decided, folded


def _one_fill(functions: int) -> tuple[float, float]:
    log = Log(functions)
    with quiet():
        log.took = log.own = 0.0
        log.fill()
        log.rest()
    assert len(log.state.placements) == functions
    return functions / (log.took - log.own), functions / log.took


def _edits(functions: int, options: Options) -> tuple[tuple[float, float], float]:
    """p50 and p99 in seconds over a thousand edits of code, of grants and of who is there, and the p99 of what they leave
    for later; medians of the runs."""
    log = Log(functions)
    log.fill()
    log.rest()
    results = [_one_run(log, number, options.size(EDITS, EDITS // 4)) for number in range(options.runs + 1)]
    p50, p99, later = (median(values) for values in zip(*results[1:], strict=True))
    return (p50, p99), later


def _one_run(log: Log, number: int, edits_each: int) -> tuple[float, float, float]:
    edits, later = [], []
    with quiet():
        for index, (key, function) in enumerate(Random(number).sample(log.functions, edits_each)):
            if index % 3 == 0:
                edits.append(log.edit(key, subjects.FUNCTION, function.replaced(artifact=f"v{number + 2}")))
            elif index % 3 == 1:
                edits.append(log.edit(key, subjects.ACCESS, FunctionAccess(grants=(f"group/g{number}",))))
                later.append(log.wait())
            else:
                edits.append(log.edit(key, subjects.FUNCTION, None))
                log.wait()
                log.edit(key, subjects.FUNCTION, function)
            log.wait()
    return median(edits), percentile(edits, 0.99), percentile(later, 0.99)
