"""Where one function is: its placement, and why.

A function is in the pool that it declares, alone or with others; or on its way there; or waits for its turn to go there;
or is rejected, with the reason and what would cure it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from services.pooler.access import PoolKey, pool_named
from services.pooler.assign import full, unknown_runtime
from services.pooler.pools import plan_of
from services.pooler.view import PoolPlan, Rejection, View
from services.pooler.world import SERVICE, State
from shared import subjects
from shared.model.pool import PoolPlacement
from shared.service import NOTHING, Change, Decision
from shared.subjects import Key

_NOWHERE = PoolPlacement()


class Verdict(NamedTuple):
    """What the placement of a function should be; None = it should not be. `waits`: it is not where it should be."""

    placement: PoolPlacement | None
    outcome: str = ""
    reasons: Mapping[str, Any] | None = None
    waits: bool = False


def decide_function(view: View, function: Key) -> Decision | None:
    """What changes about one function; None where its placement is as it should be.

    Who is simply let in needs no explanation beside that of the pool.
    """
    state = view.state
    present = state.placement(function)
    verdict = _verdict(view, function, present)
    placement = verdict.placement
    if placement is not None and (placement is present or placement == present):
        return None
    explained = state.explained("function", function)
    if placement is None and present is None and not explained:
        return None
    cause = state.cause(function)
    if placement is None:
        changes = [Change(subjects.PLACEMENT, function, None)] if present is not None else []
        if explained:
            changes.append(Change(subjects.DECISION, (SERVICE, "function", *function), None))
        return Decision("function", function, verdict.outcome, tuple(changes), cause=cause, explain=False)
    explain = verdict.waits or explained or bool(placement.moving_from)
    change = Change(subjects.PLACEMENT, function, placement)
    reasons = verdict.reasons or NOTHING
    return Decision("function", function, verdict.outcome, (change,), reasons, cause=cause, explain=explain)


def inside_of(view: View, pool: PoolKey) -> PoolPlacement:
    """The placement of whoever is in a pool and nowhere else: the same for all of them."""
    if pool not in view.placements:
        view.placements[pool] = _placed(pool)
    return view.placements[pool]


def _verdict(view: View, function: Key, present: PoolPlacement | None) -> Verdict:
    state = view.state
    wanted = state.wanted(function)
    if wanted is None:
        gone = function in state.gone
        return Verdict(None if gone else present, "deleted")
    plan = plan_of(view, wanted)
    name = function[1]
    if name in plan.members:
        return _admitted(view, function, wanted, present, plan)
    if name in plan.queued:
        return _queued(view, function, wanted, present, plan)
    if plan.hold or name in plan.soon:
        return Verdict(present)
    placement, outcome, reasons = rejection_of(view, plan)
    return Verdict(placement, outcome, reasons, waits=True)


def reject(state: State, rejection: Rejection, function: Key) -> Decision:
    """What is decided about a new function for which its pool has no place."""
    change = Change(subjects.PLACEMENT, function, rejection.placement)
    return Decision("function", function, rejection.outcome, (change,), rejection.reasons, cause=state.cause(function))


def rejection_of(view: View, plan: PoolPlan) -> Rejection:
    """Why a pool takes nobody else: the same for all who declare it and are not in it."""
    if plan.key not in view.rejections:
        view.rejections[plan.key] = _rejection(view, plan.key, plan)
    return view.rejections[plan.key]


def _rejection(view: View, wanted: PoolKey, plan: PoolPlan) -> Rejection:
    reason = no_place(view.state, plan)
    if plan.unknown_runtime:
        reasons: dict[str, Any] = {"runtime": wanted.runtime, "cure": f"a Runtime named {wanted.runtime}"}
    else:
        limit = view.state.policy(wanted.namespace).limit
        cure = "another pooling.worker, a higher limit in the PoolingPolicy, or that one of the members goes"
        reasons = {"pool": str(wanted), "limit": limit, "held_by": plan.members, "cure": cure}
    return Rejection(_placed(wanted, rejected=True, reason=reason), f"rejected: {reason}", reasons)


def no_place(state: State, plan: PoolPlan) -> str:
    """Why nobody else is let in."""
    if plan.unknown_runtime:
        return unknown_runtime(plan.key.runtime)
    return full(plan.key, state.policy(plan.key.namespace).limit)


def _placed(wanted: PoolKey, **fields: Any) -> PoolPlacement:
    pool, pooled = str(wanted), not wanted.solo
    return _NOWHERE.replaced(pooled=pooled, key=f"{wanted.namespace}/{pool}" if pooled else "", pool=pool, **fields)


def is_simply_in(pool: str, placement: PoolPlacement) -> bool:
    """Whether a placement says that its function is in this pool, and nothing else."""
    elsewhere = placement.rejected or placement.queued_for or placement.moving_from
    return placement.pool == pool and not elsewhere


def is_rejected(pool: str, reason: str, placement: PoolPlacement) -> bool:
    """Whether a placement says that this pool does not take its function, for this reason."""
    return placement.rejected and placement.pool == pool and placement.reason == reason


def _reasons(plan: PoolPlan) -> Mapping[str, Any]:
    return {"pool": str(plan.key), "members": plan.members}


def _admitted(view: View, function: Key, wanted: PoolKey, present: PoolPlacement | None, plan: PoolPlan) -> Verdict:
    here = present is not None and not present.rejected and present.pool == str(wanted) and not present.queued_for
    if present is not None and here:
        if not present.moving_from:
            return Verdict(present)
        if view.state.is_member(function, pool_named(function, present.moving_from)):
            return Verdict(present)
        outcome = f"in {wanted}; {present.moving_from} has let it go"
        return Verdict(inside_of(view, wanted), outcome, _reasons(plan))
    source = view.runs_elsewhere(wanted, function[1])
    if source is None:
        placement = inside_of(view, wanted)
        return Verdict(placement, f"in {placement.pool}", _reasons(plan))
    moving = _placed(wanted, moving_from=source, moves_by=view.change_ends)
    return Verdict(moving, f"moves from {source} to {wanted}", {**_reasons(plan), "from": source})


def _queued(view: View, function: Key, wanted: PoolKey, present: PoolPlacement | None, plan: PoolPlan) -> Verdict:
    limit = view.state.policy(wanted.namespace).limit
    reason = f"waits for its turn: at most {limit} pools of {wanted.namespace} change at a time"
    source = view.runs_elsewhere(wanted, function[1])
    if present is None or source is None:
        placement = _NOWHERE.replaced(queued_for=str(wanted), reason=reason)
    else:
        placement = present.replaced(queued_for=str(wanted), reason=reason)
    where = f"stays in {source}" if source is not None else "runs nowhere yet"
    reasons = {
        "pool": str(wanted),
        "changing": [str(pool) for pool in view.changing(wanted.namespace)][:limit],
        "cure": "it goes on by itself as soon as one of these has changed",
    }
    return Verdict(placement, f"queued for {wanted}; {where}", reasons, waits=True)
