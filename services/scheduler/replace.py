"""`replace`, the one way to change what runs.

    start another → healthy → drain the old → the routes say so and the live proxies have moved → stop → gone

It serves replicas that are gone or lost (others start at once, and the old stop in the same commit), those that have to
leave (they serve until another is healthy, at most one extra at a time), old sets after a deployment, and scale-down,
which is the same without the start. A drain ends at its deadline whatever the routes say.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from services.scheduler.draft import Draft
from services.scheduler.placement import Placed, place
from services.scheduler.replicas import Replica, free_slots, must_leave, next_attempt
from services.scheduler.workload import Template
from shared import subjects
from shared.model.assignment import Desired
from shared.model.route import Routed

DRAIN_SECONDS = 30
PROXY_LIVE_SECONDS = 15
MAX_STARTS = 200
"""At most so many replicas are started in one pass, each with the end of another: all fits into one commit."""


def converge(
    members: Sequence[Replica], deployment: str, wanted: int, template: Callable[[], Template | None], draft: Draft
) -> None:
    """Bring the set that serves to `wanted` replicas: start, replace, drain.

    `template` is asked for where something is to be started. None = nothing may be, the rest goes on.
    """
    live = [item for item in members if item.runs]
    dead = [item for item in members if item.assignment.desired == "run" and not item.live]
    leaving = {item.id: why for item in live if (why := must_leave(item, draft))}
    if len(live) < wanted:
        start(members, dead, deployment, wanted - len(live), wanted, template(), draft)
        return
    for item in dead:
        move(item, "stop", item.fate, draft)
    if len(live) > wanted:
        _drain_excess(live, wanted, leaving, draft)
    elif leaving:
        first = min((item for item in live if item.id in leaving), key=lambda item: (item.healthy, item.id))
        draft.reasons["leaving"] = leaving
        start(members, [first], deployment, 1, wanted + 1, template(), draft)


def start(
    members: Sequence[Replica],
    replaced: Sequence[Replica],
    deployment: str,
    missing: int,
    wanted: int,
    template: Template | None,
    draft: Draft,
) -> Placed | None:
    """Place and start the `missing` of a set's `wanted` replicas, in the place of `replaced` while there are any."""
    if template is None:
        return None
    placed = _pick(members, min(missing, MAX_STARTS), template, draft)
    slots = free_slots(members)
    picks = placed.reasons.get("picks", ())
    names: dict[str, str] = {}
    for index, node in enumerate(placed.nodes):
        old = replaced[index] if index < len(replaced) else None
        why = _why_there(picks[index]) if index < len(picks) else ""
        names[_start_one(node, next(slots), old, deployment, template, why, draft)] = node
        if old is not None and not old.live:
            move(old, "stop", old.fate, draft)
    if placed.shortfall:
        draft.short(placed, template.request, missing - len(placed.nodes), wanted)
    if names:
        nodes = ", ".join(f"{node} ×{times}" if times > 1 else node for node, times in Counter(names.values()).items())
        draft.outcomes.append(f"start {len(names)} of release {template.release} on {nodes}")
        draft.reasons["placed"] = names
        draft.reasons["placement"] = dict(placed.reasons)
    return placed


def place_one(
    template: Template, pin: str | None, old: Replica | None, deployment: str, draft: Draft
) -> tuple[str | None, str | None]:
    """Start one replica, on the pinned node where there is a pin: its id and node, or None and why in the draft."""
    request = replace(template.request, pin=pin)
    placed = place(draft.state.cluster, request, 1)
    if placed.shortfall:
        draft.short(placed, request, 1, 1)
        return None, None
    (node,) = placed.nodes
    draft.state.cluster.reserve(node, request.workload, request.cpu_millis, request.memory_mb)
    picks = placed.reasons.get("picks", ())
    name = _start_one(node, 0, old, deployment, template, _why_there(picks[0]) if picks else "", draft)
    draft.outcomes.append(f"start release {template.release} on {node}")
    draft.reasons["placed"] = {name: node}
    draft.reasons["placement"] = dict(placed.reasons)
    return name, node


def _pick(members: Sequence[Replica], wanted: int, template: Template, draft: Draft) -> Placed:
    """Choose nodes and reserve them for the rest of the pass. `distinct_nodes` holds within the set, so that a
    deployment may use the nodes of the set that it takes over from."""
    cluster, request = draft.state.cluster, template.request
    if not request.distinct_nodes:
        placed = place(cluster, request, wanted)
        for node in placed.nodes:
            cluster.reserve(node, request.workload, request.cpu_millis, request.memory_mb)
        return placed
    loose = replace(request, distinct_nodes=False)
    nodes: list[str] = []
    taken = {item.node for item in members if item.live}
    while len(nodes) < wanted:
        placed = place(cluster, loose, 1, frozenset(taken))
        if placed.shortfall:
            break
        nodes += placed.nodes
        taken.update(placed.nodes)
        cluster.reserve(placed.nodes[0], request.workload, request.cpu_millis, request.memory_mb)
    return Placed(tuple(nodes), wanted - len(nodes), placed.reasons)


def _start_one(
    node: str, slot: int, old: Replica | None, deployment: str, template: Template, why: str, draft: Draft
) -> str:
    attempt, delay = next_attempt(old) if old is not None else (0, 0.0)
    if old is not None:
        why = f"in place of {old.id}, {old.fate}; {why}"
    name, record = template.assignment(
        deployment,
        slot,
        draft.incarnation,
        draft.now,
        attempt=attempt,
        not_before=draft.now + timedelta(seconds=delay) if delay else None,
        replaces=old.id if old is not None else "",
        reason=why,
    )
    draft.change(subjects.ASSIGNMENT, (node, name), record)
    return name


def _why_there(pick: Mapping[str, Any]) -> str:
    """The key by which the node was the best, in words."""
    free = pick.get("free_memory_mb")
    memory = "memory unlimited" if free is None else f"{free} MB free"
    region = pick["region"] or "-"
    return f"{pick['replicas_on_node']} replicas on the node, {pick['replicas_in_region']} in region {region}, {memory}"


def _drain_excess(live: Sequence[Replica], wanted: int, leaving: Mapping[str, str], draft: Draft) -> None:
    """Drain those that are too many: what has to leave first, then unhealthy ones, then the most crowded node, then the
    newest. What has to leave stays until all others are healthy, and a healthy one while it is needed."""
    crowd = Counter(item.node for item in live)
    healthy = sum(item.healthy for item in live)
    others_are_healthy = all(item.healthy for item in live if item.id not in leaving)
    excess = len(live) - wanted
    order = sorted(live, key=lambda item: (item.assignment.incarnation, item.assignment.slot), reverse=True)
    while excess > 0 and order:
        victim = min(order, key=lambda item: (item.id not in leaving, item.healthy, -crowd[item.node]))
        order.remove(victim)
        if victim.id in leaving and not others_are_healthy:
            return
        if victim.healthy and healthy - 1 < wanted:
            continue
        healthy -= victim.healthy
        crowd[victim.node] -= 1
        excess -= 1
        move(victim, "drain", leaving.get(victim.id, f"one of {len(live)}, {wanted} wanted"), draft)


def end(members: Iterable[Replica], why: str, draft: Draft) -> None:
    """Take a set out of service: drain what is live, stop what is not."""
    for item in members:
        if item.assignment.desired == "run":
            move(item, "drain" if item.live else "stop", why, draft)


def move(item: Replica, desired: Desired, why: str, draft: Draft) -> None:
    """Write the next value of `desired`; left for the next pass where this one is full."""
    if draft.full:
        return
    deadline: datetime | None = item.assignment.drain_deadline
    if desired == "drain":
        deadline = draft.now + timedelta(seconds=DRAIN_SECONDS)
    record = item.assignment.replaced(desired=desired, drain_deadline=deadline, reason=why)
    draft.change(subjects.ASSIGNMENT, item.key, record)
    draft.outcomes.append(f"{desired} {item.id}: {why}")
    draft.because(item.version.sequence)


def progress(members: Sequence[Replica], routed: Routed | None, draft: Draft) -> None:
    """Go on with what drains and what stops, whatever set it belongs to. `routed` is what the routes have taken in."""
    for item in members:
        if item.assignment.desired == "drain" and (why := _drained(item, routed, draft)):
            move(item, "stop", why, draft)
        elif item.assignment.desired == "stop" and item.gone and not draft.full:
            draft.change(subjects.ASSIGNMENT, item.key, None)
            draft.outcomes.append(f"forget {item.id}: {item.fate}")


def _drained(item: Replica, routed: Routed | None, draft: Draft) -> str:
    """Why a draining replica may stop now; empty while it may not."""
    if not item.live:
        return item.fate
    behind, listening_since = _proxies_behind(routed, draft)
    covered = routed is not None and routed.drains.get(item.id, 0) >= item.version.sequence
    deadline = item.assignment.drain_deadline
    if deadline is not None:
        if draft.now >= deadline:
            named = f"; proxies behind: {', '.join(behind)}" if covered and behind else ""
            return "drain deadline" + ("" if covered else "; the routes have not taken it in") + named
        draft.wake(deadline)
    if not covered or routed is None or listening_since is None:
        return ""
    if draft.now < listening_since:
        draft.wake(listening_since)
        return ""
    return "" if behind else f"routes version {routed.version} is without it, and the proxies have it"


def _proxies_behind(routed: Routed | None, draft: Draft) -> tuple[list[str], datetime | None]:
    """The live proxies that do not serve the version of `routed`, and since when all live ones have been heard."""
    state = draft.state
    if routed is None or state.attended_at is None:
        return [], None
    behind = []
    seen: dict[str, int] = {}
    errors: dict[str, str] = {}
    for name, heard in sorted(state.proxies.items()):
        until = heard.at + timedelta(seconds=PROXY_LIVE_SECONDS)
        if draft.now >= until:
            continue
        seen[name] = heard.version
        if heard.error:
            errors[name] = heard.error
        if heard.version < routed.version or heard.error:
            behind.append(f"{name}: {heard.error}" if heard.error else name)
            draft.wake(until)
    draft.observation.update({"attended_at": state.attended_at, "proxies": seen})
    if errors:
        draft.observation["errors"] = errors
    return behind, state.attended_at + timedelta(seconds=PROXY_LIVE_SECONDS)
