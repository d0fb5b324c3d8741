"""`decide(state, now)`: what the pooler does next, and when it has to look again.

It looks at what has changed since it last looked, at what has become due, and, where there are turns to give, at the
pools that are queued for one; pools first, each with the functions whose place it decides, then functions by themselves.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from heapq import merge
from itertools import groupby
from typing import Any, cast

from services.pooler.access import PoolKey
from services.pooler.functions import decide_function
from services.pooler.pools import PoolPlan, View
from services.pooler.world import SERVICE, Look, State, Target
from shared import subjects
from shared.model.service import Notice
from shared.service import MAX_BATCH, Change, Decision, Plan
from shared.subjects import Key

MAX_LOOKS = 2000
"""The most targets of one pass: a pass after a load, which looks at everything, must not hold up the lease."""

POOL_FULL = "pool_full"
NO_RUNTIME = "runtime_missing"


def decide(state: State, now: datetime) -> Plan:
    """One pass: at most one commit. Says `wake_at = now` if more is left."""
    this = _Pass(state, now)
    for target in this.targets():
        if not this.take(target):
            this.more = True
            break
    return this.plan()


class _Pass:
    def __init__(self, state: State, now: datetime) -> None:
        self.state, self.now = state, now
        self.view = View(state, now)
        self.decisions: list[Decision] = []
        self.looks: dict[Target, Look] = {}
        self.size = 0
        self.more = False

    def targets(self) -> Iterator[Target]:
        """Pools, each once and in order, so that turns are given in order too; then functions."""
        state = self.state
        due = sorted({target for _, target in state.due.irange(maximum=(self.now, ("~",)))})
        queues = [self._queue(namespace) for namespace in state.queued]
        marked = state.dirty.irange(("pool",), ("pool", "~"))
        for target, _ in groupby(merge(marked, due, *queues)):
            if target in state.dirty or target in due or self.view.free_turns(target[1]):
                yield target
        for target in state.dirty.irange(("function",), ("function", "~")):
            if target not in self.looks:
                yield target

    def _queue(self, namespace: str) -> Iterator[Target]:
        """The pools that wait for a turn, as long as there is one."""
        for pool in self.state.queued[namespace]:
            if not self.view.free_turns(namespace):
                return
            yield ("pool", *pool)

    def take(self, target: Target) -> bool:
        """Look at one target; False ends the pass, with what is left for the next one."""
        if len(self.looks) >= MAX_LOOKS:
            return False
        if target[0] == "pool":
            return self._take_pool(target, PoolKey(*target[1:]))
        return self._take_function(target)

    def _take_function(self, target: Target) -> bool:
        """A function by itself; where its pool has to change too, both go into one commit."""
        wanted = self.state.wanted.get(target[1:])
        if wanted is not None and ("pool", *wanted) not in self.looks and self.view.plan(wanted).changed:
            if not self._take_pool(("pool", *wanted), wanted):
                return False
            if target in self.looks:
                return True
        decision = decide_function(self.view, target[1:])
        return self._add([decision] if decision is not None else [], {target: Look(self.state.dirty.get(target))})

    def _take_pool(self, target: Target, key: PoolKey) -> bool:
        plan = self.view.plan(key)
        looks = {target: Look(self.state.dirty.get(target), plan.wake_at, plan.waits)}
        decisions = list(_decide_pool(self.state, plan, self.now))
        for function in _whose_place_it_is(self.state, plan):
            looks["function", *function] = Look(self.state.dirty.get(("function", *function)))
            decision = decide_function(self.view, function)
            if decision is not None:
                decisions.append(decision)
        return self._add(decisions, looks)

    def _add(self, decisions: list[Decision], looks: Mapping[Target, Look]) -> bool:
        size = sum(decision.size for decision in decisions)
        if self.size + size > MAX_BATCH:
            assert self.decisions, "the decision about one pool does not fit into one commit"
            return False
        self.decisions += decisions
        self.size += size
        self.looks.update(looks)
        return True

    def plan(self) -> Plan:
        return Plan(tuple(self.decisions), self.now if self.more else self._wake_at(), self.looks)

    def _wake_at(self) -> datetime | None:
        """The first time at which something is due: a member that has to leave, or a turn that ends."""
        others = (at for at, target in self.state.due if target not in self.looks)
        wakes = [look.wake_at for look in self.looks.values() if look.wake_at is not None]
        wakes += [at for at in (next(others, None),) if at is not None]
        for namespace in self._queues():
            at = self.view.next_turn_at(namespace)
            wakes.append(self.now if at is None or self.view.free_turns(namespace) else at)
        return min(wakes, default=None)

    def _queues(self) -> set[str]:
        """The namespaces in which somebody waits for a turn after this pass."""
        looked = {target[1:]: look.queued for target, look in self.looks.items() if target[0] == "pool"}
        waiting = {pool[0] for pool, queued in looked.items() if queued}
        for namespace, pools in self.state.queued.items():
            if any(tuple(pool) not in looked for pool in pools):
                waiting.add(namespace)
        return waiting


def _whose_place_it_is(state: State, plan: PoolPlan) -> list[Key]:
    """The functions whose placement follows from the plan of a pool: who declares it and is, was or will be in it."""
    namespace = plan.key.namespace
    names = {*plan.members, *plan.queued, *(plan.before.members if plan.before is not None else ())}
    functions = {(namespace, name) for name in names} | state.queuing.get(plan.key, set())
    return sorted(function for function in functions if state.wanted.get(function) == plan.key)


def _decide_pool(state: State, plan: PoolPlan, now: datetime) -> Iterator[Decision]:
    key = cast(Key, plan.key)
    changes = list(_notices(state, plan, now))
    if plan.record is None:
        if plan.before is not None:
            changes.append(Change(subjects.POOL, key, None))
        about = (SERVICE, "pool", *key)
        if state.get_version(subjects.DECISION, about) is not None:
            changes.append(Change(subjects.DECISION, about, None))
        if changes:
            yield Decision("pool", key, f"no pool {plan.key}", tuple(changes), explain=False)
        return
    if plan.changed:
        changes.append(Change(subjects.POOL, key, plan.record))
    if changes:
        outcome, reasons = _explanation(state, plan)
        cause = max((state.sequence_of(subjects.FUNCTION, (key[0], name)) for name in plan.members), default=0)
        yield Decision("pool", key, outcome, tuple(changes), reasons, cause=cause, explain=plan.rebuilt)


def _explanation(state: State, plan: PoolPlan) -> tuple[str, dict[str, Any]]:
    before = plan.before.members if plan.before is not None else ()
    joined = [name for name in plan.members if name not in before]
    left = [name for name in before if name not in plan.members]
    moves = " ".join([*(f"+{name}" for name in joined), *(f"-{name}" for name in left)])
    policy = state.policy(plan.key.namespace)
    reasons = {
        "members": list(plan.members),
        "joined": joined,
        "left": left,
        "staying": [name for name in plan.members if state.wanted.get((plan.key.namespace, name)) != plan.key],
        "admission": policy.admission,
        "limit": policy.limit,
    }
    return f"{len(plan.members)} of {policy.limit} members: " + (moves or "the same"), reasons


def _notices(state: State, plan: PoolPlan, now: datetime) -> Iterator[Change]:
    """Raise what begins, once; take back what has ended."""
    names = state.groups.get(plan.key, ())
    inside = {*plan.members, *plan.queued}
    waits = len(names) > len(inside) or any(name not in inside for name in names)
    limit = state.policy(plan.key.namespace).limit
    texts = {
        NO_RUNTIME: f"functions wait: there is no Runtime named {plan.key.runtime}" if plan.unknown_runtime else "",
        POOL_FULL: f"pool {plan.key} of {plan.key.namespace} is full ({limit}); functions wait",
    }
    for kind, message in texts.items():
        wanted = waits and bool(message) and (kind == POOL_FULL) != plan.unknown_runtime
        about = (SERVICE, kind, *plan.key)
        standing = state.get(subjects.NOTICE, about, Notice)
        if wanted and (standing is None or standing.message != message):
            yield Change(subjects.NOTICE, about, Notice(severity="warning", message=message, at=now))
        elif not wanted and standing is not None:
            yield Change(subjects.NOTICE, about, None)
