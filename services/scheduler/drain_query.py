"""The dry run of a drain: what would move where, what would only stop, and what cannot leave, with the reasons.

Each replica is placed in a trial, one after the other, with the node left out; what a drain really picks is decided when
it happens, on the state of then. A replica is replaced before it goes, so both reserve for a while.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from services.scheduler.placement import Request, place
from services.scheduler.replicas import Replica, replicas_of
from services.scheduler.state import State
from services.scheduler.workload import workload_id
from shared import subjects
from shared.errors import InvalidSubject, SteerError
from shared.model.deployment import ActiveRelease
from shared.model.node import Node, NodeControl
from shared.model.pool import Pool
from shared.model.release import Release

Row = dict[str, Any]


def drain_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """`{node, stop_stateful?}` → `{node, moves, stops, held, stuck, ending}`, each a list of replicas.

    `moves` have a place to go `to`; `stops` are stateful ones that end first, then start again; `held` are stateful ones
    that the drain would wait for; `stuck` have no place, with the reasons; `ending` are on their way out anyway.
    """
    node = _node(state, request.get("node"))
    control = state.get(subjects.NODE_CONTROL, (node,), NodeControl) or NodeControl()
    stop_stateful = request.get("stop_stateful", control.stop_stateful)
    if not isinstance(stop_stateful, bool):
        raise SteerError("stop_stateful: true or false")
    found: dict[str, list[Row]] = {name: [] for name in ("moves", "stops", "held", "stuck", "ending")}
    with state.cluster.trial():
        for item in _replicas_on(state, node):
            kind, row = _fate(state, item, stop_stateful)
            found[kind].append({"assignment": item.id, "workload": workload_id(item.assignment.workload), **row})
    return {"node": node, **found}


def _node(state: State, value: Any) -> str:
    if not isinstance(value, str):
        raise SteerError("node: its name is wanted")
    try:
        subjects.NODE.check((value,))
    except InvalidSubject as error:
        raise SteerError(f"node: {error.reason}") from None
    if state.get(subjects.NODE, (value,), Node) is None:
        raise SteerError(f"node: {value} does not exist")
    return value


def _replicas_on(state: State, node: str) -> list[Replica]:
    targets = set()
    for key in state.replicas_on.get(node, ()):
        version = state.tables[subjects.ASSIGNMENT][key]
        ref = getattr(version.record, "workload", None)
        if ref is not None:
            targets.add((ref.kind, *ref.key.split("/")))
    found = [item for target in sorted(targets) for item in replicas_of(state, target) if item.node == node]
    return sorted(found, key=lambda item: item.id)


def _fate(state: State, item: Replica, stop_stateful: bool) -> tuple[str, Row]:
    if not item.runs:
        return "ending", {"reason": item.fate if item.gone or item.lost else f"{item.assignment.desired} already"}
    request, stateful = _request(state, item)
    if stateful and not stop_stateful:
        return "held", {"reason": "stateful: it stays until stop_stateful allows to stop it"}
    if item.assignment.run.volumes:
        return "stops", {"reason": f"its volumes are on {item.node}: it starts again there when the drain ends"}
    placed = place(state.cluster, request, 1, _left_out(state, item, request))
    if placed.shortfall:
        return "stuck", {"reasons": dict(placed.reasons)}
    (to,) = placed.nodes
    state.cluster.reserve(to, request.workload, request.cpu_millis, request.memory_mb)
    return ("stops" if stateful else "moves"), {"to": to}


def _left_out(state: State, item: Replica, request: Request) -> frozenset[str]:
    """The node itself; with `distinct_nodes` those of the set, and those just picked for it."""
    taken = {item.node}
    if request.distinct_nodes:
        taken |= set(state.cluster.replicas(request.workload))
    return frozenset(taken)


def _request(state: State, item: Replica) -> tuple[Request, bool]:
    """What a replica like this one asks of a node, and whether it is stateful."""
    record = item.assignment
    key = tuple(record.workload.key.split("/"))
    asked = Request(workload_id(record.workload), record.resources.cpu_millis, record.resources.memory_mb)
    if record.workload.kind == "pool":
        pool = state.get(subjects.POOL, key, Pool)
        return replace(asked, platforms=pool.platforms if pool is not None else ()), False
    release = state.get(subjects.RELEASE, (*key, record.release), Release)
    if release is None:
        return asked, bool(record.run.volumes)
    active = state.get(subjects.ACTIVE, key, ActiveRelease)
    built = active.platforms if active is not None and active.version == record.release else ()
    placement = release.service.placement
    return replace(
        asked,
        constraints=tuple(sorted(placement.constraints.items())),
        platforms=release.platforms or built,
        distinct_nodes=placement.distinct_nodes,
    ), release.service.stateful
