"""One pass over a pool of functions: one worker, replaced when its signature changes.

The new worker starts beside the old one. The old one drains when the functions that both carry are ready in the new, or a
minute after that became healthy: a function in both is never without a worker. Which set a worker belongs to is the
signature that it was started for, kept as its `deployment`.
"""

from datetime import datetime, timedelta
from functools import partial

from services.scheduler import replace
from services.scheduler.draft import Draft
from services.scheduler.replicas import Replica, replicas_of
from services.scheduler.state import SERVICE, State
from services.scheduler.workload import Template, make_template
from shared import subjects
from shared.model.assignment import WorkloadRef
from shared.model.pool import Pool
from shared.model.route import Routed
from shared.service import Decision
from shared.subjects import Key

CARRIED_SECONDS = 60
SIGNATURE_DIGITS = 16


def decide_pool(state: State, key: Key, now: datetime) -> tuple[list[Decision], list[Draft]]:
    """The decision about a pool and the draft that it comes from."""
    draft = Draft(state, "pool", key, now)
    pool = state.get(subjects.POOL, key, Pool)
    if pool is None and not state.deleted(subjects.POOL, key):
        return [], [draft]  # no record at all means hold
    draft.because(state.sequence_of(subjects.POOL, key))
    members = replicas_of(state, ("pool", *key))
    if pool is None or not pool.desired:
        replace.end(members, "the pool has no members" if pool is not None else "the pool is deleted", draft)
    else:
        _converge(key, pool, members, draft)
    replace.progress(members, state.get(subjects.ROUTED_POOL, key, Routed), draft)
    if pool is None and not members and not draft.changes:
        return _forget(state, key, draft), [draft]
    decision = draft.decision()
    return ([decision] if decision is not None else []), [draft]


def _converge(key: Key, pool: Pool, members: list[Replica], draft: Draft) -> None:
    signature = pool.signature[:SIGNATURE_DIGITS]
    current = [item for item in members if item.assignment.deployment == signature]
    old = [item for item in members if item.assignment.deployment != signature and item.assignment.desired == "run"]
    replace.converge(current, signature, pool.desired, partial(_template, key, pool), draft)
    ready = sum(_carries(item, pool, old, draft) for item in current if item.runs)
    if old and ready >= pool.desired:
        replace.end(old, f"signature {signature} is ready", draft)


def _carries(item: Replica, pool: Pool, old: list[Replica], draft: Draft) -> bool:
    """Whether a new worker has taken over what an old one carries."""
    if not item.healthy or item.instance is None or item.instance_at is None:
        return False
    served = {
        name
        for worker in old
        if worker.instance is not None
        for name, state in worker.instance.members.items()
        if state == "ready"
    }
    waiting = [name for name in pool.members if name in served and item.instance.members.get(name) != "ready"]
    until = item.instance_at + timedelta(seconds=CARRIED_SECONDS)
    if waiting and draft.now < until:
        draft.reasons["carried"] = {"waits for": waiting}
        draft.wake(until)
        return False
    return True


def _template(key: Key, pool: Pool) -> Template:
    ref = WorkloadRef(kind="pool", key="/".join(key))
    release = pool.signature[:SIGNATURE_DIGITS]
    return make_template(ref, key[1], release, pool.run, pool.resources, platforms=pool.platforms)


def _forget(state: State, key: Key, draft: Draft) -> list[Decision]:
    """The explanations of a pool go with it."""
    for kind, about in ((subjects.DECISION, "pool"), (subjects.NOTICE, "no_capacity")):
        if (SERVICE, about, *key) in state.tables[kind]:
            draft.change(kind, (SERVICE, about, *key), None)
    if not draft.changes:
        return []
    return [Decision("pool", key, "forgotten", tuple(draft.changes), explain=False)]
