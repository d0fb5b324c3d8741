"""The workers of pools: which assignments run a pool, what their hosts say, and which pools are still changing.

A pool is changing from a new signature until a worker of that signature has loaded its members, or until `settles_by`.
"""

from sortedcontainers import SortedSet

from services.pooler.access import PoolKey
from services.pooler.world import Report, State, Worker, member
from shared.model.assignment import Assignment, Instance
from shared.model.pool import Pool
from shared.service import Version

CONFIG_HASH_DIGITS = 16
"""A signature begins with the hash that the scheduler gives to the same run spec and resources."""
_UP = ("running", "healthy")
_LOADED = ("ready", "failed")


def fold_assignment(state: State, version: Version, old: Version | None) -> None:
    record, place = version.record, version.key
    before = state.workers.get(place)
    if before is not None and before.sequence >= version.sequence:
        return
    after = None
    if isinstance(record, Assignment) and record.workload.kind == "pool":
        key = tuple(record.workload.key.split("/"))
        if len(key) == 4:
            after = Worker(PoolKey(*key), record.config_hash, record.desired == "run", version.sequence)
    if before is not None:
        member(state.workers_of, before.pool, place, False)
        del state.workers[place]
    if after is not None:
        state.workers[place] = after
        member(state.workers_of, after.pool, place, True)
    for pool in {worker.pool for worker in (before, after) if worker is not None}:
        _heard_of(state, pool)


def fold_instance(state: State, version: Version, old: Version | None) -> None:
    record, place = version.record, version.key
    before = state.reports.get(place)
    if before is not None and before.sequence >= version.sequence:
        return
    members = record.members if isinstance(record, Instance) and record.state in _UP else {}
    if members:
        state.reports[place] = Report(members, version.sequence)
    elif before is not None:
        del state.reports[place]
    worker = state.workers.get(place)
    if worker is not None and (before.members if before is not None else {}) != members:
        _heard_of(state, worker.pool)


def _heard_of(state: State, pool: PoolKey) -> None:
    """Who is ready in a pool may have changed: look at the pools that keep its members until they are.

    A pool whose change is over may change at once; one whose host has lost members is changing again, and needs no turn.
    """
    before = pool in state.changing_until
    sync_changing(state, pool)
    if before != (pool in state.changing_until):
        state.mark_pool(pool)
    record = state.pool(pool)
    for name in record.members if record is not None else ():
        for source in state.guests.get((pool.namespace, name), ()):
            if source != pool:
                state.mark_pool(source)


def sync_changing(state: State, pool: PoolKey) -> None:
    """A pool is changing until a worker with its present signature has loaded every member, or `settles_by`."""
    record = state.pool(pool)
    until = record.settles_by if record is not None and record.desired and not _loaded(state, pool, record) else None
    before = state.changing_until.get(pool)
    if before == until:
        return
    namespace = pool.namespace
    if before is not None:
        del state.changing_until[pool]
        state.changing[namespace].discard((before, pool))
        if not state.changing[namespace]:
            del state.changing[namespace]
    if until is not None:
        state.changing_until[pool] = until
        if namespace not in state.changing:
            state.changing[namespace] = SortedSet()
        state.changing[namespace].add((until, pool))


def _loaded(state: State, pool: PoolKey, record: Pool) -> bool:
    for place in state.workers_of.get(pool, ()):
        worker, report = state.workers[place], state.reports.get(place)
        current = worker.runs and worker.config_hash == record.signature[:CONFIG_HASH_DIGITS]
        if current and report is not None and all(report.members.get(name) in _LOADED for name in record.members):
            return True
    return False
