"""`fold`: one version of one record into the state. Total and idempotent; per subject the highest sequence wins.

It marks what has to be looked at: a pool, a function. Own records come back as they were decided, so they mark only what
others depend on.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import cast

from sortedcontainers import SortedSet

from services.pooler.access import PoolKey, pool_of
from services.pooler.workers import fold_assignment, fold_instance, sync_changing
from services.pooler.world import DEFAULT_POLICY, READS, SERVICE, Look, State, Target, member
from shared import subjects
from shared.model.pool import Pool, PoolPlacement
from shared.service import Plan, Sample, Version
from shared.subjects import Key

__all__ = ["READS", "SERVICE", "State", "attend", "fold", "observe", "settle"]

_OF_EVERY_SERVICE = frozenset({subjects.DECISION.name, subjects.NOTICE.name})
_REMEMBERED = frozenset({subjects.FUNCTION.name, subjects.RUNTIME.name})
"""Kinds whose tombstone says something: no record at all means hold, only a tombstone tears down."""


def fold(state: State, version: Version) -> None:
    """Put one version of one record into the state. Total and idempotent; ignores what the pooler does not read."""
    kind, key = version.kind.name, version.key
    take = _FOLDS.get(kind)
    if take is None or (kind in _OF_EVERY_SERVICE and key[0] != SERVICE):
        return
    state.sequence = max(state.sequence, version.sequence)
    table = state.named.get(kind)
    old = None
    if table is not None:
        old = table.get(key)
        if old is not None and old.sequence >= version.sequence:
            return
        if version.record is None and kind not in _REMEMBERED:
            table.pop(key, None)
        else:
            table[key] = version
    take(state, version, old)


def _fold_function(state: State, version: Version, old: Version | None) -> None:
    """A function, or its access record: either may give it another pool."""
    key = version.key
    namespace, name = key
    record = state.function(key)
    before, after = state.wanted.pop(key, None), None
    if record is not None:
        after = state.wanted[key] = pool_of(namespace, name, record, state.access(key))
    if before != after:
        if before is not None:
            group = state.groups[before]
            del group[bisect_left(group, name)]
            if not group:
                del state.groups[before]
                _keep(state, before)
        if after is not None and after in state.groups:
            insort(state.groups[after], name)
        elif after is not None:
            state.groups[after] = [name]
            _keep(state, after)
    if record is None and version.kind is subjects.ACCESS:
        return
    if before is not None and before != after:
        state.mark_pool(before)
    if after is not None:
        state.mark_pool(after)
    for pool in state.holders.get(key, ()):
        state.mark_pool(pool)
    state.mark_function(key)


def _fold_policy(state: State, version: Version, old: Version | None) -> None:
    before = old.record if old is not None else DEFAULT_POLICY
    if before != state.policy(version.key[0]):
        _mark_all(state, state.pools_in.get(version.key[0], ()))


def _fold_runtime(state: State, version: Version, old: Version | None) -> None:
    if old is None or old.record != version.record:
        _mark_all(state, state.pools_with.get(version.key[0], ()))


def _mark_all(state: State, pools: Iterable[PoolKey]) -> None:
    for pool in pools:
        state.mark_pool(pool)
        for name in state.groups.get(pool, ()):
            state.mark_function((pool.namespace, name))


def _fold_placement(state: State, version: Version, old: Version | None) -> None:
    key = version.key
    before = cast(PoolPlacement, old.record) if old is not None else None
    after = cast(PoolPlacement | None, version.record)
    if before is not None and before.queued_for:
        member(state.queuing, _named(key, before.queued_for), key, False)
    if after is not None and after.queued_for:
        member(state.queuing, _named(key, after.queued_for), key, True)
    for pool in state.holders.get(key, ()):
        if after is None or after.rejected or after.pool != str(pool):
            state.mark_pool(pool)
    if after is not None and (after.moving_from or after.queued_for):
        _mark_if_let_go(state, key)


def _fold_pool(state: State, version: Version, old: Version | None) -> None:
    pool = PoolKey(*version.key)
    before = old.record.members if old is not None and isinstance(old.record, Pool) else ()
    after = version.record.members if isinstance(version.record, Pool) else ()
    for name in set(before).symmetric_difference(after) if before else after:
        member(state.holders, (pool.namespace, name), pool, name in after)
        _mark_if_let_go(state, (pool.namespace, name))
    if old is None or version.record is None:
        _keep(state, pool)
    if any(state.wanted.get((pool.namespace, name)) != pool for name in after) or pool not in state.groups:
        state.mark_pool(pool)
    sync_changing(state, pool)


def _mark_if_let_go(state: State, function: Key) -> None:
    """Its placement names a pool in which it goes on running for now, and that pool has let it go."""
    placement = state.placement(function)
    if placement is None:
        return
    holders = state.holders.get(function, ())
    for text in (placement.moving_from, placement.pool if placement.queued_for else ""):
        if text and _named(function, text) not in holders:
            state.mark_function(function)
            if placement.queued_for:
                state.mark_pool(_named(function, placement.queued_for))


def _keep(state: State, pool: PoolKey) -> None:
    here = pool in state.groups or pool in state.tables[subjects.POOL]
    member(state.pools_in, pool.namespace, pool, here)
    member(state.pools_with, pool.runtime, pool, here)


def _named(function: Key, pool: str) -> PoolKey:
    """The pool that a placement names; the placement is our own, so it is well-formed."""
    return PoolKey(function[0], *pool.split("/"))


def _fold_own(state: State, version: Version, old: Version | None) -> None:
    """A decision or a notice of our own says nothing new, but goes with the key that it speaks of."""
    match version.key:
        case (_, "function", namespace, name) if (namespace, name) not in state.wanted:
            state.mark_function((namespace, name))
        case (_, _, namespace, runtime, worker, access):
            pool = PoolKey(namespace, runtime, worker, access)
            if pool not in state.groups:
                state.mark_pool(pool)


_FOLDS: Mapping[str, Callable[[State, Version, Version | None], None]] = {
    subjects.RUNTIME.name: _fold_runtime,
    subjects.POOLING_POLICY.name: _fold_policy,
    subjects.ACCESS.name: _fold_function,
    subjects.FUNCTION.name: _fold_function,
    subjects.ASSIGNMENT.name: fold_assignment,
    subjects.INSTANCE.name: fold_instance,
    subjects.PLACEMENT.name: _fold_placement,
    subjects.POOL.name: _fold_pool,
    subjects.DECISION.name: _fold_own,
    subjects.NOTICE.name: _fold_own,
}


def observe(state: State, sample: Sample, received_at: datetime) -> None:
    """The pooler takes no telemetry."""


def attend(state: State, now: datetime) -> None:
    """The pooler takes no telemetry."""


def settle(state: State, plan: Plan, now: datetime) -> None:
    """A pass is done: take its marks away, except where something has changed since, and note when to look again."""
    for target, look in cast(Mapping[Target, Look], plan.looks).items():
        if isinstance(target, PoolKey):
            if look.mark is not None and state.dirty_pools.get(target) == look.mark:
                del state.dirty_pools[target]
            _set_due(state, target, look.wake_at)
            _set_queued(state, target, look.queued)
        elif look.mark is not None and state.dirty_functions.get(target) == look.mark:
            del state.dirty_functions[target]
    if not state.dirty_functions:
        state.dirty_functions = {}  # one that has held many costs as much to walk as if it still did


def _set_due(state: State, pool: PoolKey, at: datetime | None) -> None:
    before = state.due_at.pop(pool, None)
    if before is not None:
        state.due.discard((before, pool))
    if at is not None:
        state.due_at[pool] = at
        state.due.add((at, pool))


def _set_queued(state: State, pool: PoolKey, queued: bool) -> None:
    if queued:
        state.queued.setdefault(pool.namespace, SortedSet()).add(pool)
    elif pool in state.queued.get(pool.namespace, ()):
        state.queued[pool.namespace].discard(pool)
        if not state.queued[pool.namespace]:
            del state.queued[pool.namespace]
