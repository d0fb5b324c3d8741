"""What to publish: the records that no longer say what the facts say, and the manifest that closes them.

A pass walks what is dirty in a fixed order and stops when its batch is full: hosts, internal services and ports first,
then `Routed`, then, once nothing is left, the manifest. Notices of conflicts take the room that remains.

`settle` looks in the same way and drops what is in order. It believes no plan, so whatever happened between a decision
and its commit stays to be looked at.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from services.routes import conflicts, hosts, ports, versions
from services.routes.conflicts import Dispute
from services.routes.serving import View
from services.routes.world import Env, Item, Route, State
from services.routes.written import term_of
from shared import codec, route_digest, subjects
from shared.model.route import FunctionRoute, HostRoutes, InternalService, L4Route
from shared.service import MAX_BATCH, Change, Decision, Plan
from shared.subjects import ENVIRONMENT, ROUTE_HOST, ROUTE_INTERNAL, ROUTE_L4, ROUTE_MANIFEST, ROUTED_ENVIRONMENT, Kind

_ROOM = MAX_BATCH - 2
"""For records of a version: one message is for the manifest, one for the explanation."""

_EXPLAINED = 50
"""At most so many records are explained one by one."""


@dataclass(slots=True)
class Draft:
    """A version, or a part of one, in the making."""

    state: State
    digest: int
    changes: list[Change] = field(default_factory=list)
    explained: dict[str, str] = field(default_factory=dict)
    disputes: list[Dispute] = field(default_factory=list)
    gained: dict[Kind, int] = field(default_factory=dict)
    cause: int = 0
    complete: bool = True


def decide(state: State, now: datetime) -> Plan:
    """The next batch, and when to look again."""
    if not state.dirty and not versions.unclosed(state):
        return Plan()
    opens = versions.opens_at(state, now)
    if opens > now:
        return Plan(wake_at=opens)
    draft = _draft(state)
    decisions = [_version(draft)] if draft.changes else []
    left = MAX_BATCH - sum(decision.size for decision in decisions)
    settled, more = conflicts.decisions(state, draft.disputes, now, left)
    wake_at = now if more or not draft.complete else None
    return Plan((*decisions, *settled), wake_at)


def settle(state: State, plan: Plan, now: datetime) -> None:
    """Drop what is in order, up to the first that is not."""
    if not plan.decisions and plan.wake_at is not None:
        return
    waiting = work(state)
    view = View(state)
    for item in list(waiting):
        if _stale(view, item):
            break
        del waiting[item]
    state.dirty = waiting


def work(state: State) -> dict[Item, int]:
    """The own records to look at, in order, each with the sequence of what touched it last."""
    found: dict[Item, int] = {}
    for item, cause in state.dirty.items():
        for each in _led_to(state, item):
            found[each] = max(found.get(each, 0), cause)
    return dict(sorted(found.items(), key=lambda entry: (entry[0][0].name, entry[0][1])))


def _led_to(state: State, item: Item) -> Iterator[Item]:
    if item[0] != ENVIRONMENT:
        yield item
        return
    env: Env = item[1]
    yield ROUTE_INTERNAL, env
    yield ROUTED_ENVIRONMENT, env
    yield from state.claims.get(env, ())
    for domain in state.domains_of.get(env, ()):
        yield ROUTE_HOST, subjects.host_key(state.domains[domain].hostname)


def _draft(state: State) -> Draft:
    draft, view = Draft(state, state.digest), View(state)
    for item, cause in work(state).items():
        if len(draft.changes) == _ROOM:
            draft.complete = False
            break
        if item[0] == ROUTED_ENVIRONMENT:
            _draft_routed(draft, item, cause)
        else:
            _draft_route(draft, view, item, cause)
    if draft.complete and (draft.changes or versions.unclosed(state)):
        closing = versions.manifest(state, draft.digest, draft.gained)
        draft.changes.append(Change(ROUTE_MANIFEST, (), closing))
    return draft


def _draft_route(draft: Draft, view: View, item: Item, cause: int) -> None:
    wanted, dispute = _wanted(view, item)
    draft.disputes.append(dispute)
    before = draft.state.written.get(item)
    if not _differs(draft.state, item, wanted):
        return
    added = term_of(item, wanted) if wanted else 0
    draft.digest = route_digest.moved(draft.digest, before.term if before else 0, added)
    draft.gained[item[0]] = draft.gained.get(item[0], 0) + (wanted is not None) - (before is not None)
    draft.changes.append(Change(item[0], item[1], wanted))
    draft.explained[item[0].subject(*item[1])] = _difference(before.record if before else None, wanted)
    draft.cause = max(draft.cause, cause)


def _draft_routed(draft: Draft, item: Item, cause: int) -> None:
    wanted = versions.routed(draft.state, item[1])
    if wanted != draft.state.routed.get(item[1]):
        draft.changes.append(Change(item[0], item[1], wanted))
        draft.explained[item[0].subject(*item[1])] = "takes in the active release and the drains" if wanted else "gone"
        draft.cause = max(draft.cause, cause)


def _wanted(view: View, item: Item) -> tuple[Route | None, Dispute]:
    """The record that the facts ask for, and what is in the way of that.

    A record too large for a message is not written: the one in force stays, with a notice.
    """
    route, dispute = _asked_for(view, item)
    written = view.state.written.get(item)
    before = written.record if written else None
    if route is None or route == before or len(codec.encode(route)) <= codec.MAX_BODY_BYTES:
        return route, dispute
    return before, conflicts.too_large(dispute)


def _asked_for(view: View, item: Item) -> tuple[Route | None, Dispute]:
    if item[0] == ROUTE_HOST:
        routes, losses = hosts.host(view, item)
        return routes, conflicts.over_host(item, losses)
    if item[0] == ROUTE_L4:
        route, losers, winner = ports.l4(view, item)
        return route, conflicts.over_port(item, losers, winner)
    if item[0] == ROUTE_INTERNAL:
        return ports.internal(view, item), Dispute(item)
    return None, Dispute(item)


def _stale(view: View, item: Item) -> bool:
    state = view.state
    if item[0] == ROUTED_ENVIRONMENT:
        return versions.routed(state, item[1]) != state.routed.get(item[1])
    wanted, dispute = _wanted(view, item)
    return _differs(state, item, wanted) or not conflicts.in_order(state, dispute)


def _differs(state: State, item: Item, wanted: Route | None) -> bool:
    written = state.written.get(item)
    if written is None or wanted is None:
        return (written is None) != (wanted is None)
    return written.record != wanted or versions.outdated(state, item)


def _version(draft: Draft) -> Decision:
    number = versions.number(draft.state) + 1
    routes = len(draft.changes) - draft.complete
    outcome = f"version {number}: {routes} records" if draft.complete else f"version {number}, a part: {routes} records"
    shown = dict(list(draft.explained.items())[:_EXPLAINED])
    reasons: dict[str, Any] = {"version": number, "records": shown, "records_in_all": len(draft.explained)}
    return Decision("version", ("latest",), outcome, tuple(draft.changes), reasons, cause=draft.cause)


def _difference(before: Route | None, after: Route | None) -> str:
    """In a few words: which endpoints came and went."""
    if before is None or after is None:
        return "new" if after else "gone"
    old, new = _assignments(before), _assignments(after)
    parts = [f"+{name}" for name in sorted(new - old)] + [f"-{name}" for name in sorted(old - new)]
    shown = " ".join(parts[:10]) + (f" and {len(parts) - 10} more" if len(parts) > 10 else "")
    return shown or "same endpoints, other settings"


def _assignments(route: Route) -> set[str]:
    match route:
        case HostRoutes(routes=routes):
            endpoints = [endpoint for each in routes for endpoint in each.endpoints]
        case InternalService(ports=internal_ports):
            endpoints = [endpoint for port in internal_ports for endpoint in port.endpoints]
        case L4Route() | FunctionRoute():
            endpoints = list(route.endpoints)
    return {endpoint.assignment for endpoint in endpoints}
