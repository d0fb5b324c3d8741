"""What one pool should be: who is in it, what its worker runs, and whether it may change now.

Its members are those whom the policy admits, and those who stay: functions on their way to another pool, until they are
ready there or their time is up. Who stays keeps the row with which it runs, and so what it could reach.

A pool that runs changes by a second worker beside the first. One edit can ask for that in any number of pools, so in each
namespace at most `limit` change at a time. Such a change waits for its turn: who waits is queued, and the pool runs on as
it is. A pool that is changing already needs no other turn, only a few seconds between one change and the next; and a new
one needs a turn only if all of it runs elsewhere.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Any

import orjson
from sortedcontainers import SortedSet

from services.pooler.access import PoolKey, parse_pool
from services.pooler.assign import assigner
from services.pooler.world import State
from shared import subjects
from shared.codec import canonical
from shared.model.function import Function
from shared.model.pool import MAX_LIMIT, MEMBERS_VARIABLE, Pool, PoolPlacement, Runtime
from shared.model.run import Resources, RunSpec

CHANGE_SECONDS = 60
"""How long a change may take: then who moves leaves its old pool, and the pool's turn is over, ready or not."""
SPACING_SECONDS = 3
"""A pool that is changing changes again at most so often: functions that come one after the other share a worker."""
NAMESPACE_VARIABLE = "STEER_NAMESPACE"
_TICK = timedelta(microseconds=1)
_NOTHING: SortedSet[tuple[datetime, PoolKey]] = SortedSet()


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What becomes of one pool.

    `record` is what it should be, None = it should not be. `queued`: admitted, but not before the pool's turn. `soon`:
    admitted with its next change, seconds from now.
    `unknown_runtime`: nobody can be in it. `hold`: what is there cannot be judged, so it stays.
    """

    key: PoolKey
    before: Pool | None
    record: Pool | None
    members: tuple[str, ...] = ()
    staying: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    soon: tuple[str, ...] = ()
    unknown_runtime: bool = False
    hold: bool = False
    waits: bool = False
    """Something that it should be has to wait for its turn."""
    wake_at: datetime | None = None

    @property
    def changed(self) -> bool:
        return self.record != self.before

    @property
    def rebuilt(self) -> bool:
        """Whether another worker has to run it."""
        return (self.record.signature if self.record else "") != (self.before.signature if self.before else "")


@dataclass
class View:
    """The state as one pass looks at it: each pool is planned once, and turns are given out in the order of looking."""

    state: State
    now: datetime
    plans: dict[PoolKey, PoolPlan] = field(default_factory=dict)
    placements: dict[PoolKey, PoolPlacement] = field(default_factory=dict)
    rejections: dict[PoolKey, tuple[PoolPlacement, Mapping[str, Any]]] = field(default_factory=dict)
    """What is the same for every function that is in a pool, or that does not get into it."""
    turns: dict[str, list[PoolKey]] = field(default_factory=dict)
    """To whom turns were given in this pass, by namespace."""

    def plan(self, key: PoolKey) -> PoolPlan:
        if key not in self.plans:
            self.plans[key] = _plan(self, key)
        return self.plans[key]

    def changes_now(self, key: PoolKey) -> bool:
        until = self.state.changing_until.get(key)
        return until is not None and until > self.now

    def changes_again_at(self, key: PoolKey) -> datetime | None:
        """When a pool that is changing may change again; None where it may now."""
        record = self.state.pool(key)
        if record is None or not self.changes_now(key):
            return None
        at = record.changed_at + timedelta(seconds=SPACING_SECONDS)
        return at if at > self.now else None

    def free_turns(self, namespace: str) -> int:
        """How many more pools of the namespace may begin to change."""
        free = self.state.policy(namespace).limit - len(self.turns.get(namespace, ()))
        for _ in self.state.changing.get(namespace, _NOTHING).irange((self.now + _TICK,)) if free > 0 else ():
            free -= 1
            if free <= 0:
                break
        return max(free, 0)

    def take_turn(self, key: PoolKey) -> bool:
        if self.changes_now(key):
            return True
        if not self.free_turns(key.namespace):
            return False
        self.turns.setdefault(key.namespace, []).append(key)
        return True

    def changing(self, namespace: str) -> list[PoolKey]:
        """The first of those that have their turn now."""
        under_way = self.state.changing.get(namespace, _NOTHING).irange((self.now + _TICK,))
        return [*(pool for _, pool in islice(under_way, MAX_LIMIT)), *self.turns.get(namespace, ())]

    def next_turn_at(self, namespace: str) -> datetime | None:
        """When the first of the changes under way is over at the latest."""
        later = self.state.changing.get(namespace, _NOTHING).irange((self.now + _TICK,))
        return next((until for until, _ in later), None)

    def runs_elsewhere(self, key: PoolKey, name: str) -> PoolKey | None:
        """The other pool in which a function is placed and a member."""
        placement = self.state.placement((key.namespace, name))
        if placement is None or placement.rejected:
            return None
        pools = self.state.holders.get((key.namespace, name), ())
        for text in (placement.pool, placement.moving_from):
            pool = parse_pool(key.namespace, text)
            if pool is not None and pool != key and pool in pools:
                return pool
        return None


def _plan(view: View, key: PoolKey) -> PoolPlan:
    state, before = view.state, view.state.pool(key)
    members = before.members if before is not None else ()
    runtime = state.get(subjects.RUNTIME, (key.runtime,), Runtime)
    if before is not None and before.desired and _unjudged(state, key, runtime, members):
        return PoolPlan(key, before, before, members, hold=True)
    staying, wake_at = _staying(view, key, members)
    admitted = _admitted(state, key, members, len(staying)) if runtime is not None else []
    inside = sorted({*admitted, *staying})
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
        return replace(plan, record=before, members=members, soon=newcomers, wake_at=wake_at)
    runs = before is not None and before.desired
    in_turn = runs or all(view.runs_elsewhere(key, name) for name in inside)
    if not in_turn or view.take_turn(key):
        return plan
    if runs:
        return _waiting(view, plan, admitted)
    nobody = _record(view, key, before, runtime, (), ())
    return replace(plan, record=nobody, members=(), queued=tuple(inside), waits=True)


def _unjudged(state: State, key: PoolKey, runtime: Runtime | None, members: Collection[str]) -> bool:
    """No record says that its runtime, or one of its members, is gone; neither does one say that it is there."""
    if runtime is None and not state.deleted(subjects.RUNTIME, (key.runtime,)):
        return True
    functions = state.tables[subjects.FUNCTION]
    return any((key.namespace, name) not in functions for name in members)


def _staying(view: View, key: PoolKey, members: Collection[str]) -> tuple[list[str], datetime | None]:
    """The members that want to be elsewhere and are not there yet, and when the first of them has to leave."""
    staying: list[str] = []
    ends: list[datetime] = []
    for name in members:
        function = (key.namespace, name)
        wanted = view.state.wanted.get(function)
        placement = view.state.placement(function)
        if wanted is None or wanted == key or placement is None or placement.rejected:
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
    run, platforms, resources = _worker(state, key, before, runtime, inside, staying)
    if before is not None and (run, resources) == (before.run, before.resources) and before.desired:
        same = {"waiting_count": waiting, "limit": limit, "platforms": platforms}
        return before if _says(before, same) else before.model_copy(update=same)
    return Pool(
        members=tuple(inside),
        waiting_count=waiting,
        limit=limit,
        signature=signature(run, resources),
        run=run,
        platforms=platforms,
        resources=resources,
        desired=1,
        changed_at=view.now,
        settles_by=view.now + timedelta(seconds=CHANGE_SECONDS),
    )


def _empty(view: View, before: Pool | None, waiting: int, limit: int) -> Pool | None:
    """A pool that functions declare and none may be in."""
    if before is None:
        return None
    if not before.desired:
        same = {"waiting_count": waiting, "limit": limit}
        return before if _says(before, same) else before.model_copy(update=same)
    changes = {"members": (), "waiting_count": waiting, "limit": limit, "desired": 0, "changed_at": view.now}
    return before.model_copy(update=changes | {"settles_by": view.now})


def _says(record: Pool, fields: Mapping[str, Any]) -> bool:
    return all(getattr(record, name) == value for name, value in fields.items())


def _waiting(view: View, plan: PoolPlan, admitted: Collection[str]) -> PoolPlan:
    """The pool runs on as it is until its turn comes; only who waits is counted anew."""
    before = plan.before
    assert before is not None
    names = view.state.groups.get(plan.key, ())
    inside = sum(view.state.wanted.get((plan.key.namespace, name)) == plan.key for name in before.members)
    waiting = len(names) - inside
    record = before if before.waiting_count == waiting else before.model_copy(update={"waiting_count": waiting})
    queued = tuple(name for name in admitted if name not in before.members)
    return replace(plan, record=record, members=before.members, queued=queued, waits=True)


def _worker(
    state: State,
    key: PoolKey,
    before: Pool | None,
    runtime: Runtime | None,
    inside: Collection[str],
    staying: Collection[str],
) -> tuple[RunSpec, tuple[str, ...], Resources]:
    """What a worker with these members runs, and what it needs: the runtime's share and that of each member."""
    rows = rows_of(before) if before is not None and staying else {}
    functions = {name: state.function((key.namespace, name)) for name in inside}
    rows |= {name: row(name, it) for name, it in functions.items() if it is not None and name not in staying}
    host = runtime.run if runtime is not None else before.run if before is not None else RunSpec()
    settings = host.env_from
    first = next((functions[name] for name in inside if name not in staying), None)
    if first is not None:
        settings = (*settings, *settings_files(key.namespace, first))
    elif before is not None:
        settings = before.run.env_from
    members = orjson.dumps([rows[name] for name in inside]).decode()
    env = host.env | {NAMESPACE_VARIABLE: key.namespace, MEMBERS_VARIABLE: members}
    resources = (runtime.resources if runtime is not None else Resources()).effective()
    each = [function.resources for function in functions.values() if function is not None]
    cpu_millis, memory_mb = sum([item.cpu_millis for item in each]), sum([item.memory_mb for item in each])
    if cpu_millis or memory_mb:
        resources = Resources(cpu_millis=resources.cpu_millis + cpu_millis, memory_mb=resources.memory_mb + memory_mb)
    platforms = runtime.platforms if runtime is not None else before.platforms if before is not None else ()
    return host.model_copy(update={"env": env, "env_from": settings}), platforms, resources


def row(name: str, function: Function) -> dict[str, Any]:
    """One function as its pool host is told of it, see `PoolMember`."""
    told: dict[str, Any] = {"name": name, "handler": function.handler, "artifact": function.artifact}
    if function.env:
        told["env"] = dict(sorted(function.env.items()))
    if function.timeout_seconds:
        told["timeout_seconds"] = function.timeout_seconds
    return told


def rows_of(pool: Pool) -> dict[str, dict[str, Any]]:
    """The rows of a pool as it runs."""
    return {each["name"]: each for each in orjson.loads(pool.run.env.get(MEMBERS_VARIABLE, "[]"))}


def settings_files(namespace: str, function: Function) -> tuple[str, ...]:
    """The files of the node that its settings and secrets are in. Members of one pool agree in them, order included."""
    return (
        *(f"{namespace}/config/{name}" for name in function.config),
        *(f"{namespace}/secrets/{name}" for name in function.secrets),
    )


def signature(run: RunSpec, resources: Resources) -> str:
    """64 hex digits over all that a worker runs. The first 16 are the `config_hash` of its assignments."""
    both = {"run": run.model_dump(mode="json"), "resources": resources.model_dump(mode="json")}
    return sha256(canonical(both)).hexdigest()
