"""`fold`: one version of one record into the state. Total and idempotent; per subject the highest sequence wins.

It marks what has to be looked at: a pool, a function. Own records come back as they were decided, so they mark only what
others depend on.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import cast

from sortedcontainers import SortedSet

from services.pooler.access import PoolKey, pool_named
from services.pooler.assign import MAX_TOGETHER, strangers
from services.pooler.candidates import fold_access, fold_function, no_guest, note_guest, note_pool
from services.pooler.workers import fold_assignment, fold_instance, sync_changing
from services.pooler.world import DEFAULT_POLICY, READS, SERVICE, Look, State, Target, member
from shared import subjects
from shared.model.pool import Pool, PoolPlacement, Runtime
from shared.service import Plan, Sample, Version
from shared.subjects import Key, Kind

__all__ = ["READS", "SERVICE", "State", "attend", "fold", "observe", "settle"]


def fold(state: State, version: Version) -> None:
    """Put one version of one record into the state. Total and idempotent; ignores what the pooler does not read."""
    kind, key, sequence, record, _, _ = version
    take = _FOLDS.get(kind)
    if take is None or (take is _fold_own and key[0] != SERVICE):
        return
    if sequence > state.sequence:  # noqa: PLR1730 - once for every record: `max` takes four times as long
        state.sequence = sequence
    table, old = state.tables.get(kind), None
    if table is not None:
        old = table.get(key)
        if old is not None and old.sequence >= sequence:
            return
        if record is None and kind is not subjects.RUNTIME:  # its tombstone tears down; no record at all means hold
            table.pop(key, None)
        else:
            table[key] = version
    take(state, version, old)


def _fold_policy(state: State, version: Version, old: Version | None) -> None:
    before = old.record if old is not None else DEFAULT_POLICY
    if before != state.policy(version.key[0]):
        _mark_all(state, state.pools_in.get(version.key[0], ()))


def _fold_runtime(state: State, version: Version, old: Version | None) -> None:
    (name,), record = version.key, version.record
    if isinstance(record, Runtime):
        state.hosts[name] = record.run.model_dump(mode="json")
    else:
        state.hosts.pop(name, None)
    if old is None or old.record != version.record:
        _mark_all(state, state.pools_with.get(name, ()))


def _mark_all(state: State, pools: Iterable[PoolKey]) -> None:
    for pool in pools:
        state.mark_pool(pool)
        group = state.groups.get(pool, ())
        for name in group if len(group) > MAX_TOGETHER else ():
            state.mark_function((pool.namespace, name))


def _fold_placement(state: State, version: Version, old: Version | None) -> None:
    key = version.key
    before, after = old.record if old is not None else None, version.record
    assert before is None or isinstance(before, PoolPlacement)
    assert after is None or isinstance(after, PoolPlacement)
    if before is not None and before.queued_for:
        member(state.queuing, pool_named(key, before.queued_for), key, False)
    if key in state.guests:
        for pool in state.guests[key]:
            if after is None or after.rejected or after.pool != str(pool):
                state.mark_pool(pool)
    if after is not None and (after.moving_from or after.queued_for):
        _mark_if_let_go(state, key)
        if after.queued_for:
            member(state.queuing, pool_named(key, after.queued_for), key, True)


def _fold_pool(state: State, version: Version, old: Version | None) -> None:
    pool, record = PoolKey(*version.key), version.record
    before = old.record.members if old is not None and isinstance(old.record, Pool) else ()
    after = record.members if isinstance(record, Pool) else ()
    others = strangers(after, state.groups.get(pool, ()))
    for name in others:
        note_guest(state, (pool.namespace, name), pool)
    for name in before:
        if name not in after:
            no_guest(state, (pool.namespace, name), pool)
            _mark_if_let_go(state, (pool.namespace, name))
    if old is None or record is None:
        note_pool(state, pool)
    if others or pool not in state.groups:
        state.mark_pool(pool)
    sync_changing(state, pool)


def _mark_if_let_go(state: State, function: Key) -> None:
    """Its placement names a pool in which it goes on running for now, and that pool has let it go."""
    placement = state.placement(function)
    if placement is None or not (placement.moving_from or placement.queued_for):
        return
    for text in (placement.moving_from, placement.pool if placement.queued_for else ""):
        if text and not state.is_member(function, pool_named(function, text)):
            state.mark_function(function)
            if placement.queued_for:
                state.mark_pool(pool_named(function, placement.queued_for))


def _fold_own(state: State, version: Version, old: Version | None) -> None:
    """A decision or a notice of our own says nothing new, but goes with the key that it speaks of."""
    match version.key:
        case (_, "function", namespace, name) if (namespace, name) not in state.functions:
            state.mark_function((namespace, name))
        case (_, _, namespace, runtime, worker, access):
            pool = PoolKey(namespace, runtime, worker, access)
            if pool not in state.groups:
                state.mark_pool(pool)


_FOLDS: Mapping[Kind, Callable[[State, Version, Version | None], None]] = {
    subjects.RUNTIME: _fold_runtime,
    subjects.POOLING_POLICY: _fold_policy,
    subjects.ACCESS: fold_access,
    subjects.FUNCTION: fold_function,
    subjects.ASSIGNMENT: fold_assignment,
    subjects.INSTANCE: fold_instance,
    subjects.PLACEMENT: _fold_placement,
    subjects.POOL: _fold_pool,
    subjects.DECISION: _fold_own,
    subjects.NOTICE: _fold_own,
}
"""What follows from a record, and from the version before it where records of its kind are held."""


def observe(state: State, sample: Sample, received_at: datetime) -> None:
    """The pooler takes no telemetry."""


def attend(state: State, now: datetime) -> None:
    """The pooler takes no telemetry."""


def settle(state: State, plan: Plan, now: datetime) -> None:
    """A pass is done: take its marks away, except where something has changed since, and note when to look again."""
    for target, look in cast(Mapping[Target, Look | int | None], plan.looks).items():
        if isinstance(look, Look):
            _settle_pool(state, cast(PoolKey, target), look)
        elif look is not None and state.dirty_functions.get(target) == look:
            del state.dirty_functions[target]
    if not state.dirty_functions:
        state.dirty_functions = {}  # one that has held many costs as much to walk as if it still did


def _settle_pool(state: State, pool: PoolKey, look: Look) -> None:
    if look.mark is not None and state.pool_marks.get(pool) == look.mark:
        del state.pool_marks[pool]
        state.dirty_pools.discard(pool)
    _set_due(state, pool, look.wake_at)
    _set_queued(state, pool, look.queued)


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
