"""The functions: what is held of each, who declares which pool, and in which pools each is a member.

A record of a function is read once, when it comes, and kept as a `Candidate`. Its access record may come before it or
after it, and gives it another pool.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from functools import partial

from services.pooler.access import SOLO_PREFIX, PoolKey, Said, once, pool_and_said, said_by
from services.pooler.assign import MAX_TOGETHER
from services.pooler.hosting import row
from services.pooler.world import Access, Candidate, State, member
from shared import subjects
from shared.model.function import Function, FunctionAccess
from shared.service import Version
from shared.subjects import Key

_NO_ACCESS = Access(0)
_made_of: Callable[[tuple[PoolKey, int, Said, str, int, int]], Candidate] = partial(tuple.__new__, Candidate)
"""A candidate of what it holds, at half the cost of `Candidate(...)`: there is one of each function."""


def fold_function(state: State, version: Version, old: Version | None) -> None:
    _, key, sequence, record, _, _ = version
    before = state.functions.get(key)
    deleted = state.gone.get(key, 0) if before is None else 0
    if sequence <= (before.sequence if before is not None else deleted):
        return
    was = before.pool if before is not None else None
    if isinstance(record, Function):
        after = state.functions[key] = _candidate(key, sequence, record, state.access.get(key, _NO_ACCESS))
        if deleted:
            del state.gone[key]
        _declares(state, key, was, after.pool)
    else:
        state.functions.pop(key, None)
        state.gone[key] = sequence
        _declares(state, key, was, None)


def fold_access(state: State, version: Version, old: Version | None) -> None:
    key, record = version.key, version.record
    before = state.access.get(key, _NO_ACCESS)
    if version.sequence <= before.sequence:
        return
    if isinstance(record, FunctionAccess):
        after = state.access[key] = Access(version.sequence, once(record.owned), once(record.grants))
    else:
        state.access.pop(key, None)
        after = _NO_ACCESS
    candidate = state.functions.get(key)
    if candidate is None:
        return
    namespace, runtime, worker, _ = was = candidate.pool
    pool, said = pool_and_said(namespace, runtime, worker, candidate.said, after.owned, after.grants)
    state.functions[key] = candidate._replace(pool=pool, said=said)
    _declares(state, key, was, pool)


def _candidate(key: Key, sequence: int, function: Function, access: Access) -> Candidate:
    namespace, name = key
    worker = function.pooling.worker or SOLO_PREFIX + name
    said = said_by(function)
    pool, said = pool_and_said(namespace, function.runtime, worker, said, access.owned, access.grants)
    resources = function.resources
    return _made_of((pool, sequence, said, row(name, function), resources.cpu_millis, resources.memory_mb))


def _declares(state: State, function: Key, before: PoolKey | None, after: PoolKey | None) -> None:
    """A function declares another pool than before, or the same anew: look at every pool that this concerns."""
    if before is not None and before != after:
        _leave(state, function, before)
    if after is None:
        state.mark_function(function)
    else:
        group = state.groups[after] if before == after else _join(state, function, after)
        state.mark_pool(after)
        if len(group) > MAX_TOGETHER:
            state.mark_function(function)
    if function in state.guests:
        if after is not None:
            no_guest(state, function, after)
        for pool in state.guests.get(function, ()):
            state.mark_pool(pool)


def _leave(state: State, function: Key, pool: PoolKey) -> None:
    group = state.groups[pool]
    del group[bisect_left(group, function[1])]
    if not group:
        del state.groups[pool]
        note_pool(state, pool)
    if state.is_member(function, pool):
        note_guest(state, function, pool)
    state.mark_pool(pool)


def _join(state: State, function: Key, pool: PoolKey) -> list[str]:
    """All who declare the pool now."""
    group = state.groups.get(pool)
    if group is None:
        group = state.groups[pool] = [function[1]]
        note_pool(state, pool)
    else:
        insort(group, function[1])
        if len(group) == MAX_TOGETHER + 1:
            for name in group:
                state.mark_function((function[0], name))
    return group


def note_pool(state: State, pool: PoolKey) -> None:
    """Whether a pool is declared or exists may have changed."""
    here = pool in state.groups or pool in state.tables[subjects.POOL]
    member(state.pools_in, pool.namespace, pool, here)
    member(state.pools_with, pool.runtime, pool, here)


def note_guest(state: State, function: Key, pool: PoolKey) -> None:
    """A function is a member of a pool that it does not declare."""
    pools = state.guests.get(function, ())
    if pool not in pools:
        state.guests[function] = (*pools, pool)


def no_guest(state: State, function: Key, pool: PoolKey) -> None:
    """A function is no member of a pool any more, or declares it."""
    pools = tuple(each for each in state.guests.get(function, ()) if each != pool)
    if pools:
        state.guests[function] = pools
    else:
        state.guests.pop(function, None)
