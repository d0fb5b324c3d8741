"""What to publish: the records that no longer say what the facts say, and the manifest that closes them.

A pass looks at a bounded number of records, in a fixed order, and stops when its batch is full: functions, hosts,
internal services and ports first, then `Routed`, then, once nothing is left, the manifest. Notices of conflicts take the
room that remains.

`settle` drops what the pass has looked at. What was touched between a decision and its commit has a newer mark, and stays
to be looked at; and so does a host in dispute, until its notices are all there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from services.routes import conflicts, functions, hosts, ports, versions
from services.routes.conflicts import Dispute
from services.routes.serving import View
from services.routes.world import Item, Mark, Route, State
from services.routes.written import as_written, forget_drafts, in_force, subject_of
from shared import codec, route_digest, subjects
from shared.model.route import FunctionRoute, HostRoutes, InternalService, L4Route
from shared.service import MAX_BATCH, Change, Decision, Plan
from shared.subjects import ROUTE_MANIFEST

HOST = subjects.ROUTE_HOST.name
INTERNAL = subjects.ROUTE_INTERNAL.name
L4 = subjects.ROUTE_L4.name
FUNCTION = subjects.ROUTE_FUNCTION.name
ROUTED = subjects.ROUTED_ENVIRONMENT.name
ROUTED_POOL = subjects.ROUTED_POOL.name

_LOOKS = 2000
"""Records that one pass looks at, so that it is over long before a lease lapses."""

_ROOM = MAX_BATCH - 2
"""For records of a version: one message is for the manifest, one for the explanation."""

_EXPLAINED = 50
"""At most so many records are explained one by one."""


class Wanted(NamedTuple):
    """The record that the facts ask for, what it adds to the digest, and what is in the way."""

    route: Route | None
    term: int
    dispute: Dispute


@dataclass(slots=True)
class Draft:
    """A version, or a part of one, in the making. `looks` are the marks of what is in order once it is stored."""

    state: State
    digest: int
    changes: list[Change] = field(default_factory=list)
    explained: dict[str, str] = field(default_factory=dict)
    disputes: list[Dispute] = field(default_factory=list)
    gained: dict[str, int] = field(default_factory=dict)
    looks: dict[Item, int] = field(default_factory=dict)
    cause: int = 0
    complete: bool = True


def decide(state: State, now: datetime) -> Plan:
    """The next batch, and when to look again."""
    if not state.dirty and not state.dirty_environments and not versions.unclosed(state):
        return Plan()
    opens = versions.opens_at(state, now)
    if opens > now:
        return Plan(wake_at=opens)
    draft = _draft(state)
    decisions = [_version(draft)] if draft.changes else []
    left = MAX_BATCH - sum(decision.size for decision in decisions)
    notices, more = conflicts.decisions(state, draft.disputes, now, left)
    wake_at = now if more or not draft.complete else None
    return Plan((*decisions, *notices), wake_at, draft.looks)


def settle(state: State, plan: Plan, now: datetime) -> None:
    """Drop what the pass has looked at and nothing has touched since."""
    forget_drafts()
    if not plan.looks:
        return
    fresh = _led_to(state)
    state.dirty.update({item: max(mark, state.dirty.get(item, mark)) for item, mark in fresh.items()})
    state.dirty_environments.clear()
    for item, seen in plan.looks.items():
        mark = state.dirty.get(item)
        if mark is not None and mark.number == seen:
            del state.dirty[item]


def work(state: State) -> Iterator[tuple[Item, Mark]]:
    """The own records to look at, in order, each with the last mark on what leads to it."""
    fresh = _led_to(state)
    for item, group in groupby(merge(sorted(fresh.items()), state.dirty.items()), key=itemgetter(0)):
        yield item, max(mark for _, mark in group)


def _led_to(state: State) -> dict[Item, Mark]:
    """The own records that the dirty environments lead to."""
    found: dict[Item, Mark] = {}
    for env, mark in state.dirty_environments.items():
        items = [(INTERNAL, env), (ROUTED, env), *state.claims.get(env, ())]
        items += [(HOST, subjects.host_key(state.domains[key].hostname)) for key in state.domains_of.get(env, ())]
        for item in items:
            before = found.get(item)
            found[item] = mark if before is None else max(before, mark)
    return found


def _draft(state: State) -> Draft:
    draft, view = Draft(state, state.digest), View(state)
    for looked, (item, mark) in enumerate(work(state)):
        if looked == _LOOKS or len(draft.changes) == _ROOM:
            draft.complete = False
            break
        if item[0] in (ROUTED, ROUTED_POOL):
            _draft_routed(draft, item, mark)
        else:
            _draft_route(draft, view, item, mark)
    if draft.complete and (draft.changes or versions.unclosed(state)):
        closing = versions.manifest(state, draft.digest, draft.gained)
        draft.changes.append(Change(ROUTE_MANIFEST, (), closing))
    return draft


def _draft_route(draft: Draft, view: View, item: Item, mark: Mark) -> None:
    wanted = _wanted(view, item)
    if conflicts.in_order(draft.state, wanted.dispute):
        draft.looks[item] = mark.number
    else:
        draft.disputes.append(wanted.dispute)
    if not _differs(draft.state, item, wanted):
        return
    written = draft.state.written.get(item)
    draft.digest = route_digest.moved(draft.digest, written.term if written else 0, wanted.term)
    draft.gained[item[0]] = draft.gained.get(item[0], 0) + (wanted.route is not None) - (written is not None)
    draft.changes.append(Change(subjects.BY_NAME[item[0]], item[1], wanted.route))
    if len(draft.explained) < _EXPLAINED:
        draft.explained[subject_of(item)] = _difference(in_force(draft.state, item), wanted.route)
    draft.cause = max(draft.cause, mark.cause)


def _draft_routed(draft: Draft, item: Item, mark: Mark) -> None:
    draft.looks[item] = mark.number
    wanted = versions.routed(draft.state, item[1])
    if wanted == draft.state.routed.get(item[1]):
        return
    draft.changes.append(Change(subjects.BY_NAME[item[0]], item[1], wanted))
    if len(draft.explained) < _EXPLAINED:
        draft.explained[subject_of(item)] = "takes in the active release and the drains" if wanted else "gone"
    draft.cause = max(draft.cause, mark.cause)


def _wanted(view: View, item: Item) -> Wanted:
    """A record too large for a message is not written: the one in force stays, with a notice."""
    route, dispute = _asked_for(view, item)
    if route is None:
        return Wanted(None, 0, dispute)
    drafted = as_written(item, route)
    if len(drafted.body) <= codec.MAX_BODY_BYTES:
        return Wanted(route, drafted.term, dispute)
    written = view.state.written.get(item)
    return Wanted(in_force(view.state, item), written.term if written else 0, conflicts.too_large(dispute))


def _asked_for(view: View, item: Item) -> tuple[Route | None, Dispute]:
    if item[0] == HOST:
        routes, losses = hosts.host(view, item)
        return routes, conflicts.over_host(item, losses)
    if item[0] == L4:
        route, losers, winner = ports.l4(view, item)
        return route, conflicts.over_port(item, losers, winner)
    if item[0] == INTERNAL:
        return ports.internal(view, item), Dispute(item)
    assert item[0] == FUNCTION, f"{item[0]} is no route"
    return functions.function(view.state, item), Dispute(item)


def _differs(state: State, item: Item, wanted: Wanted) -> bool:
    """Records are equal if and only if their bytes are, so what they add to the digest tells."""
    written = state.written.get(item)
    if written is None or wanted.route is None:
        return (written is None) != (wanted.route is None)
    return written.term != wanted.term or versions.outdated(state, item)


def _version(draft: Draft) -> Decision:
    number = versions.number(draft.state) + 1
    routes = len(draft.changes) - draft.complete
    outcome = f"version {number}: {routes} records" if draft.complete else f"version {number}, a part: {routes} records"
    reasons: dict[str, Any] = {"version": number, "records": draft.explained, "records_in_all": routes}
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
