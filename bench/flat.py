"""The cost of one decision does not follow the size of the world; a fleet at rest writes nothing."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from time import perf_counter

from bench.harness import Figure, Options, Row, growth, percentile, quiet
from bench.settled import REPLICAS, SCHEDULER, History, environment_key, living
from services.scheduler.state import State
from shared import subjects
from shared.model.environment import Environment, Replicas
from shared.model.live import NodeSample
from shared.model.node import Fleet
from shared.service import Plan, Sample, Version

LIMIT = 1.5
REST_SECONDS = 600


def run(options: Options) -> Iterator[Row]:
    yield from _one_of_many(options)
    yield from _at_rest(options)


def _one_of_many(options: Options) -> Iterator[Row]:
    few, many = options.size(1_000, 100), options.size(10_000, 1_000)
    nodes, samples = options.size(2_000, 200), options.size(1_000, 100)
    costs = {count: _cost(living(nodes, count * REPLICAS), count, samples) for count in (few, many)}
    size = f"{many:,} environments, {nodes:,} nodes"
    yield Figure("one changed environment: decide", 1e6 * costs[many], "µs", size)
    yield growth("one changed environment", costs[many], costs[few], f"{few:,} → {many:,} environments", LIMIT)


def _cost(history: History, count: int, samples: int) -> float:
    """The median time of a pass after a change of one environment: another replica, or one fewer."""
    state, now, sequence = history.state, history.now, len(history.log)
    taken = []
    _rest(state, now, sequence)
    with quiet():
        for sample in range(samples):
            key = environment_key(sample * 7919 % count)
            before = state.get(subjects.ENVIRONMENT, key, Environment)
            assert before is not None
            wanted = REPLICAS + (before.replicas.min == REPLICAS)
            record = before.model_copy(update={"replicas": Replicas(min=wanted)})
            sequence += 1
            SCHEDULER.fold(state, Version(subjects.ENVIRONMENT, key, sequence, record, now))
            begun = perf_counter()
            plan = SCHEDULER.decide(state, now)
            taken.append(perf_counter() - begun)
            assert len(plan.decisions) == 1, "one environment has changed"
            sequence = _commit(state, plan, now, sequence)
            SCHEDULER.settle(state, plan, now)
            sequence = _rest(state, now, sequence)
    return percentile(taken, 0.5)


def _commit(state: State, plan: Plan, now: datetime, sequence: int) -> int:
    """Fold what was decided; the last sequence then."""
    for decision in plan.decisions:
        for change in decision.changes:
            sequence += 1
            SCHEDULER.fold(state, Version(change.kind, change.key, sequence, change.record, now))
    return sequence


def _rest(state: State, now: datetime, sequence: int) -> int:
    """Decide until nothing is left; the last sequence then."""
    while True:
        plan = SCHEDULER.decide(state, now)
        sequence = _commit(state, plan, now, sequence)
        SCHEDULER.settle(state, plan, now)
        if not plan.decisions and plan.wake_at != now:
            return sequence


def _at_rest(options: Options) -> Iterator[Row]:
    """Heartbeats only, for ten minutes of the virtual clock."""
    nodes = options.size(5_000, 500)
    history = living(nodes, options.size(5_000, 500))
    state, now, begun = history.state, history.now, len(history.log)
    fleet = state.get(subjects.FLEET, (), Fleet) or Fleet()
    interval = fleet.heartbeat_interval_seconds
    names = history.node_names()
    beat = NodeSample(interval_seconds=interval)
    SCHEDULER.attend(state, now)
    sequence = begun
    for _ in range(REST_SECONDS // interval):
        for name in names:
            SCHEDULER.observe(state, Sample("node", name, beat), now)
        sequence = _rest(state, now, sequence)
        now += timedelta(seconds=interval)
    size = f"{len(names):,} nodes, {REST_SECONDS // 60} min"
    yield Figure("fleet at rest: records written", sequence - begun, "", size, target="0", met=sequence == begun)
