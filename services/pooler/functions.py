"""Where one function is: its placement, and why.

A function is in the pool that it declares, alone or with others; or on its way there; or waits for its turn to go there;
or is rejected, with the reason and what would cure it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from services.pooler.access import PoolKey, parse_pool
from services.pooler.assign import full
from services.pooler.pools import CHANGE_SECONDS, PoolPlan, View
from services.pooler.world import SERVICE
from shared import subjects
from shared.model.pool import PoolPlacement
from shared.service import Change, Decision
from shared.subjects import Key


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the placement of a function should be; None = it should not be. `waits`: it is not where it should be."""

    placement: PoolPlacement | None
    outcome: str = ""
    reasons: Mapping[str, Any] | None = None
    waits: bool = False


def decide_function(view: View, function: Key) -> Decision | None:
    """The decision about one function; None where its placement is as it should be."""
    state = view.state
    present = state.placement(function)
    verdict = _verdict(view, function, present)
    explained = state.get_version(subjects.DECISION, (SERVICE, "function", *function)) is not None
    if verdict.placement == present and not (explained and verdict.placement is None):
        return None
    if verdict.placement is None:
        changes = [Change(subjects.PLACEMENT, function, None)] if present is not None else []
        if explained:
            changes.append(Change(subjects.DECISION, (SERVICE, "function", *function), None))
        return Decision("function", function, verdict.outcome, tuple(changes), explain=False)
    cause = max(state.sequence_of(subjects.FUNCTION, function), state.sequence_of(subjects.ACCESS, function))
    return Decision(
        "function",
        function,
        verdict.outcome,
        (Change(subjects.PLACEMENT, function, verdict.placement),),
        verdict.reasons or {},
        cause=cause,
        explain=verdict.waits or explained or bool(verdict.placement.moving_from),
    )


def _verdict(view: View, function: Key, present: PoolPlacement | None) -> Verdict:
    state = view.state
    wanted = state.wanted.get(function)
    if wanted is None:
        gone = state.deleted(subjects.FUNCTION, function)
        return Verdict(None if gone else present, "deleted")
    plan = view.plan(wanted)
    name = function[1]
    if name in plan.members:
        return _admitted(view, function, wanted, present, plan)
    if name in plan.queued:
        return _queued(view, function, wanted, present, plan)
    if plan.hold:
        return Verdict(present)
    if plan.unknown_runtime:
        return _rejected(
            wanted,
            f"runtime {wanted.runtime}: there is no Runtime of that name",
            {"runtime": wanted.runtime, "cure": f"a Runtime named {wanted.runtime}"},
        )
    limit = state.policy(wanted.namespace).limit
    return _rejected(
        wanted,
        full(wanted, limit),
        {
            "pool": str(wanted),
            "limit": limit,
            "held_by": list(plan.members),
            "cure": "another pooling.worker, a higher limit in the PoolingPolicy, or that one of the members goes",
        },
    )


def _placed(wanted: PoolKey, **fields: Any) -> PoolPlacement:
    key = "" if wanted.solo else f"{wanted.namespace}/{wanted}"
    return PoolPlacement(pooled=not wanted.solo, key=key, pool=str(wanted), **fields)


def _rejected(wanted: PoolKey, reason: str, reasons: Mapping[str, Any]) -> Verdict:
    return Verdict(_placed(wanted, rejected=True, reason=reason), f"rejected: {reason}", reasons, waits=True)


def _admitted(view: View, function: Key, wanted: PoolKey, present: PoolPlacement | None, plan: PoolPlan) -> Verdict:
    reasons = {"pool": str(wanted), "members": list(plan.members)}
    here = present is not None and not present.rejected and present.pool == str(wanted) and not present.queued_for
    if present is not None and here:
        source = parse_pool(wanted.namespace, present.moving_from)
        if source is None or source in view.state.holders.get(function, ()):
            return Verdict(present)
        return Verdict(_placed(wanted), f"in {wanted}; {source} has let it go", reasons)
    source = view.runs_elsewhere(wanted, function[1])
    if source is None:
        return Verdict(_placed(wanted), f"in {wanted}", reasons)
    until = view.now + timedelta(seconds=CHANGE_SECONDS)
    moving = _placed(wanted, moving_from=str(source), moves_by=until)
    return Verdict(moving, f"moves from {source} to {wanted}", reasons | {"from": str(source)})


def _queued(view: View, function: Key, wanted: PoolKey, present: PoolPlacement | None, plan: PoolPlan) -> Verdict:
    limit = view.state.policy(wanted.namespace).limit
    reason = f"waits for its turn: at most {limit} pools of {wanted.namespace} change at a time"
    source = view.runs_elsewhere(wanted, function[1])
    if present is None or source is None:
        placement = PoolPlacement(queued_for=str(wanted), reason=reason)
    else:
        placement = present.model_copy(update={"queued_for": str(wanted), "reason": reason})
    where = f"stays in {source}" if source is not None else "runs nowhere yet"
    reasons = {
        "pool": str(wanted),
        "changing": [str(pool) for pool in view.changing(wanted.namespace)][:limit],
        "cure": "it goes on by itself as soon as one of these has changed",
    }
    return Verdict(placement, f"queued for {wanted}; {where}", reasons, waits=True)
