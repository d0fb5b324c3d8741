"""What one pool should be: who is in it, what its worker runs, and whether it may change now.

Its members are those whom the policy admits, and those who stay: functions on their way to another pool, until they are
ready there or their time is up. A change that has to wait for its turn leaves the pool as it is, and who waits is queued;
a new pool needs a turn only if all of it runs elsewhere.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from services.pooler.access import PoolKey, parse_pool
from services.pooler.assign import assigner, strangers
from services.pooler.hosting import signature, worker
from services.pooler.view import PoolPlan, View
from services.pooler.world import State
from shared import subjects
from shared.model.pool import Pool, Runtime
from shared.model.run import Resources, RunSpec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = Pool(
    limit=1, signature="", run=RunSpec(), resources=Resources(), desired=0, changed_at=_EPOCH, settles_by=_EPOCH
)


def plan_of(view: View, key: PoolKey) -> PoolPlan:
    """What becomes of a pool; planned once in a pass."""
    if key not in view.plans:
        view.plans[key] = _plan(view, key)
    return view.plans[key]


def _plan(view: View, key: PoolKey) -> PoolPlan:
    state, before = view.state, view.state.pool(key)
    members = before.members if before is not None else ()
    runtime = state.get(subjects.RUNTIME, (key.runtime,), Runtime)
    moving = strangers(members, state.groups.get(key, ())) if members else ()
    if before is not None and before.desired and _unjudged(state, key, runtime, moving):
        return PoolPlan(key, before, before, members, hold=True)
    staying, wake_at = _staying(view, key, moving) if moving else ((), None)
    admitted = _admitted(state, key, members, len(staying)) if runtime is not None else []
    inside = sorted({*admitted, *staying}) if staying else admitted
    record = _record(view, key, before, runtime, inside, frozenset(staying))
    plan = PoolPlan(
        key, before, record, tuple(inside), tuple(staying), unknown_runtime=runtime is None, wake_at=wake_at
    )
    if not inside or not plan.rebuilt:
        return plan
    soon = view.changes_again_at(key)
    if before is not None and soon is not None:
        newcomers = tuple(name for name in inside if name not in members)
        wake_at = min(soon, wake_at or soon)
        return plan._replace(record=before, members=members, soon=newcomers, wake_at=wake_at)
    runs = before is not None and before.desired
    in_turn = runs or all(view.runs_elsewhere(key, name) for name in inside)
    if not in_turn or view.take_turn(key):
        return plan
    if runs:
        return _waiting(view, plan, admitted)
    nobody = _record(view, key, before, runtime, (), ())
    return plan._replace(record=nobody, members=(), queued=tuple(inside), waits=True)


def _unjudged(state: State, key: PoolKey, runtime: Runtime | None, moving: Collection[str]) -> bool:
    """No record says that its runtime, or one of its members, is gone; neither does one say that it is there."""
    if runtime is None and not state.runtime_deleted(key.runtime):
        return True
    functions = [(key.namespace, name) for name in moving]
    return any(function not in state.functions and function not in state.gone for function in functions)


def _staying(view: View, key: PoolKey, moving: Collection[str]) -> tuple[list[str], datetime | None]:
    """Those of the members who declare another pool and are not there yet, and when the first of them has to leave."""
    staying: list[str] = []
    ends: list[datetime] = []
    for name in moving:
        function = (key.namespace, name)
        placement = view.state.placement(function)
        if function not in view.state.functions or placement is None or placement.rejected:
            continue
        if placement.pool == str(key):
            staying.append(name)
            continue
        target = parse_pool(key.namespace, placement.pool)
        until = placement.moves_by
        if target is not None and until is not None and until > view.now and not view.state.ready(target, name):
            staying.append(name)
            ends.append(until)
    del staying[view.state.policy(key.namespace).limit :]
    return staying, min(ends, default=None)


def _admitted(state: State, key: PoolKey, members: Collection[str], staying: int) -> list[str]:
    """Whom the policy admits. While others stay, newcomers wait; who is a member keeps the place."""
    policy = state.policy(key.namespace)
    admitted = assigner(policy.admission, members).admit(state.groups.get(key, ()), policy.limit)
    too_many = len(admitted) + staying - policy.limit
    if too_many <= 0:
        return admitted
    newcomers = [name for name in admitted if name not in members]
    waiting = set(newcomers[-too_many:])
    return [name for name in admitted if name not in waiting][: max(policy.limit - staying, 0)]


def _record(
    view: View,
    key: PoolKey,
    before: Pool | None,
    runtime: Runtime | None,
    inside: Collection[str],
    staying: Collection[str],
) -> Pool | None:
    """The record of a pool with these members: the one in force where that says the same."""
    state = view.state
    names = state.groups.get(key, ())
    if not inside and (before is None or not names):
        return None
    waiting = len(names) - len(inside) + len(staying)
    limit = state.policy(key.namespace).limit
    if not inside:
        return _empty(view, before, waiting, limit)
    run, platforms, resources = worker(state, key, before, runtime, inside, staying)
    if before is not None and (run, resources) == (before.run, before.resources) and before.desired:
        same = {"waiting_count": waiting, "limit": limit, "platforms": platforms}
        return before if _says(before, same) else before.replaced(**same)
    return _NOTHING.replaced(
        members=tuple(inside),
        waiting_count=waiting,
        limit=limit,
        signature=signature(run, resources, state.hosts.get(key.runtime)),
        run=run,
        platforms=platforms,
        resources=resources,
        desired=1,
        changed_at=view.now,
        settles_by=view.change_ends,
    )


def _empty(view: View, before: Pool | None, waiting: int, limit: int) -> Pool | None:
    """A pool that functions declare and none may be in."""
    if before is None:
        return None
    same = {"waiting_count": waiting, "limit": limit}
    if not before.desired:
        return before if _says(before, same) else before.replaced(**same)
    return before.replaced(members=(), desired=0, changed_at=view.now, settles_by=view.now, **same)


def _says(record: Pool, fields: Mapping[str, Any]) -> bool:
    return all(getattr(record, name) == value for name, value in fields.items())


def _waiting(view: View, plan: PoolPlan, admitted: Collection[str]) -> PoolPlan:
    """The pool runs on as it is until its turn comes; only who waits is counted anew."""
    before = plan.before
    assert before is not None
    names = view.state.groups.get(plan.key, ())
    inside = sum(view.state.wanted((plan.key.namespace, name)) == plan.key for name in before.members)
    waiting = len(names) - inside
    record = before if before.waiting_count == waiting else before.replaced(waiting_count=waiting)
    queued = tuple(name for name in admitted if name not in before.members)
    return plan._replace(record=record, members=before.members, queued=queued, waits=True)
