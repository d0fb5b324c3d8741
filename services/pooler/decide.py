"""`decide(state, now)`: what the pooler does next, and when it has to look again.

It looks at what has changed since it last looked, at what has become due, and, where there are turns to give, at the
pools that are queued for one; pools first, each with the functions whose place it decides, then functions by themselves.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from heapq import merge, nsmallest
from itertools import groupby
from typing import Any, cast

from services.pooler.access import PoolKey
from services.pooler.assign import MAX_TOGETHER
from services.pooler.functions import (
    decide_function,
    inside_of,
    is_rejected,
    is_simply_in,
    no_place,
    reject,
    rejection_of,
)
from services.pooler.pools import plan_of
from services.pooler.view import PoolPlan, View
from services.pooler.world import SERVICE, Look, State, Target
from shared import subjects
from shared.model.pool import PoolPlacement
from shared.model.service import Notice
from shared.service import MAX_BATCH, Change, Decision, Plan
from shared.subjects import Key

MAX_LOOKS = 2000
"""The most targets of one pass: a pass after a load, which looks at everything, must not hold up the lease."""

POOL_FULL = "pool_full"
NO_RUNTIME = "runtime_missing"
_WARNING = Notice(severity="warning", message="", at=datetime(1970, 1, 1, tzinfo=UTC))
_LAST = PoolKey("~", "~", "~", "~")
"""Sorts after every pool: names are of small letters, digits and -."""


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
        self.pools: dict[PoolKey, Look] = {}
        self.functions: dict[Key, int | None] = {}
        """What was looked at; of a function the mark that it had, None for one that keeps it: whoever gets in with the
        next change of a pool, of whom nothing has been said yet."""
        self.looked = 0
        self.size = 0
        self.more = False

    def targets(self) -> Iterator[Target]:
        """Pools, each once and in order, so that turns are given in order too; then functions."""
        state = self.state
        due = {pool for _, pool in state.due.irange(maximum=(self.now, _LAST))}
        queues = [self._queue(namespace) for namespace in state.queued]
        for pool, _ in groupby(merge(state.dirty_pools, sorted(due), *queues)):
            if pool in state.pool_marks or pool in due or self.view.free_turns(pool.namespace):
                yield pool
        left = [function for function in state.dirty_functions if function not in self.functions]
        yield from nsmallest(MAX_LOOKS + 1, left)

    def _queue(self, namespace: str) -> Iterator[PoolKey]:
        """The pools that wait for a turn, as long as there is one."""
        for pool in self.state.queued[namespace]:
            if not self.view.free_turns(namespace):
                return
            yield pool

    def take(self, target: Target) -> bool:
        """Look at one target; False ends the pass, with what is left for the next one."""
        self.looked += 1
        if self.looked > MAX_LOOKS:
            return False
        return self._take_pool(target) if isinstance(target, PoolKey) else self._take_function(target)

    def _take_function(self, function: Key) -> bool:
        """A function by itself; where its pool has to change too, both go into one commit."""
        wanted = self.state.wanted(function)
        changes = wanted is not None and wanted not in self.pools and plan_of(self.view, wanted).changed
        if wanted is not None and changes and not self._take_pool(wanted):
            return False
        if function in self.functions:
            return True
        decision = decide_function(self.view, function)
        soon = plan_of(self.view, wanted).soon if wanted is not None else ()
        if decision is not None and not self._fits([decision]):
            return False
        self.functions[function] = self.state.dirty_functions.get(function) if function[1] not in soon else None
        return True

    def _take_pool(self, key: PoolKey) -> bool:
        plan = plan_of(self.view, key)
        functions = _whose_place_it_is(self.state, plan)
        self.looked += len(functions)
        placed, decisions, others = _new_and_others(self.view, plan, functions)
        for function in others:
            decision = decide_function(self.view, function)
            if decision is not None and decision.explain:
                decisions.append(decision)
            elif decision is not None:
                placed += decision.changes
        pool = _decide_pool(self.state, plan, placed, self.now)
        if not self._fits([pool, *decisions] if pool is not None else decisions):
            return False
        self.pools[key] = Look(self.state.pool_marks.get(key), plan.wake_at, plan.waits)
        marks = self.state.dirty_functions
        if marks:
            looked_at = [function for function in functions if function in marks]
            self.functions.update({it: marks[it] if it[1] not in plan.soon else None for it in looked_at})
        return True

    def _fits(self, decisions: list[Decision]) -> bool:
        """Add decisions that belong together, if there is room for them."""
        size = sum([decision.size for decision in decisions])
        if self.size + size > MAX_BATCH:
            assert self.decisions, "the decision about one pool does not fit into one commit"
            return False
        self.decisions += decisions
        self.size += size
        return True

    def plan(self) -> Plan:
        wake_at = self.now if self.more else self._wake_at()
        return Plan(tuple(self.decisions), wake_at, {**self.pools, **self.functions})

    def _wake_at(self) -> datetime | None:
        """The first time at which something is due: a member that has to leave, or a turn that ends."""
        others = (at for at, pool in self.state.due if pool not in self.pools)
        wakes = [look.wake_at for look in self.pools.values() if look.wake_at is not None]
        wakes += [at for at in (next(others, None),) if at is not None]
        for namespace in self._queues():
            at = self.view.next_turn_at(namespace)
            wakes.append(self.now if at is None or self.view.free_turns(namespace) else at)
        return min(wakes, default=None)

    def _queues(self) -> set[str]:
        """The namespaces in which somebody waits for a turn after this pass."""
        waiting = {pool.namespace for pool, look in self.pools.items() if look.queued}
        for namespace, pools in self.state.queued.items():
            if any(pool not in self.pools for pool in pools):
                waiting.add(namespace)
        return waiting


def _new_and_others(
    view: View, plan: PoolPlan, functions: Collection[Key]
) -> tuple[list[Change], list[Decision], list[Key]]:
    """New functions that find a place at once, of whom there is no more to be said, and those that find none. And who is
    left, of whom more may have to be said: whoever is neither new, nor simply in the pool, nor rejected, as before."""
    placements, here, reason = view.state.placements, str(plan.key), no_place(view.state, plan)
    members, coming = set(plan.members), {*plan.queued, *plan.soon}
    let_in: list[Key] = []
    rejected: list[Key] = []
    others: list[Key] = []
    for function in functions:
        version, name = placements.get(function), function[1]
        present = cast(PoolPlacement, version.record) if version is not None else None
        if name in members:
            if present is None:
                let_in.append(function)
            elif not is_simply_in(here, present):
                others.append(function)
        elif name in coming or plan.hold:
            others.append(function)
        elif present is None:
            rejected.append(function)
        elif not is_rejected(here, reason, present):
            others.append(function)
    placement = inside_of(view, plan.key) if let_in else None
    placed = [Change(subjects.PLACEMENT, function, placement) for function in let_in]
    rejection = rejection_of(view, plan) if rejected else None
    decisions = [reject(view.state, rejection, function) for function in rejected] if rejection is not None else []
    return placed, decisions, others


def _whose_place_it_is(state: State, plan: PoolPlan) -> list[Key]:
    """The functions whose placement may follow from the plan of a pool, in order: those who declare it; where they are
    many, of these who joins it, leaves it or waits for its turn."""
    namespace = plan.key.namespace
    declared = state.groups.get(plan.key, ())
    if len(declared) <= MAX_TOGETHER:
        return [(namespace, name) for name in declared]
    names = set(plan.members).symmetric_difference(plan.before.members if plan.before is not None else ())
    names.update(plan.queued)
    names.update([name for _, name in state.queuing.get(plan.key, ())])
    return [(namespace, name) for name in sorted(names) if state.wanted((namespace, name)) == plan.key]


def _decide_pool(state: State, plan: PoolPlan, placed: list[Change], now: datetime) -> Decision | None:
    """The pool, with the placements that need no explanation of their own; None where nothing changes."""
    key = cast(Key, plan.key)
    changes = [*_notices(state, plan, now), *placed]
    if plan.record is None:
        if plan.before is not None:
            changes.append(Change(subjects.POOL, key, None))
        about = (SERVICE, "pool", *key)
        if state.explained("pool", key):
            changes.append(Change(subjects.DECISION, about, None))
        outcome = f"no pool {plan.key}"
        return Decision("pool", key, outcome, tuple(changes), explain=False) if changes else None
    if plan.changed:
        changes.insert(0, Change(subjects.POOL, key, plan.record))
    if not changes:
        return None
    if not plan.rebuilt:
        return Decision("pool", key, "who waits, and the limit", tuple(changes), explain=False)
    outcome, reasons = _explanation(state, plan)
    cause = state.newest(key[0], reasons["joined"] or plan.members)
    return Decision("pool", key, outcome, tuple(changes), reasons, cause=cause)


def _explanation(state: State, plan: PoolPlan) -> tuple[str, dict[str, Any]]:
    before = plan.before.members if plan.before is not None else ()
    joined = [name for name in plan.members if name not in before] if before else plan.members
    left = [name for name in before if name not in plan.members]
    moves = " ".join([f"+{name}" for name in joined] + [f"-{name}" for name in left])
    policy = state.policy(plan.key.namespace)
    reasons = {
        "members": plan.members,
        "joined": joined,
        "left": left,
        "staying": plan.staying,
        "admission": policy.admission,
        "limit": policy.limit,
    }
    return f"{len(plan.members)} of {policy.limit} members: " + (moves or "the same"), reasons


def _notices(state: State, plan: PoolPlan, now: datetime) -> Iterator[Change]:
    """Raise what begins, once; take back what has ended."""
    names = state.groups.get(plan.key, ())
    inside = {*plan.members, *plan.queued, *plan.soon}
    waits = len(names) > len(inside) or not inside.issuperset(names)
    for kind in (NO_RUNTIME, POOL_FULL):
        about = (SERVICE, kind, *plan.key)
        standing = state.get(subjects.NOTICE, about, Notice)
        if waits and (kind == NO_RUNTIME) == plan.unknown_runtime:
            message = _message(state, plan)
            if standing is None or standing.message != message:
                yield Change(subjects.NOTICE, about, _WARNING.replaced(message=message, at=now))
        elif standing is not None:
            yield Change(subjects.NOTICE, about, None)


def _message(state: State, plan: PoolPlan) -> str:
    if plan.unknown_runtime:
        return f"functions wait: there is no Runtime named {plan.key.runtime}"
    limit = state.policy(plan.key.namespace).limit
    return f"pool {plan.key} of {plan.key.namespace} is full ({limit}); functions wait"
