"""What must come of functions once nothing goes wrong any more: each is where the policy says, as we read it."""

from services.pooler.access import PoolKey, pool_of
from services.pooler.assign import ByName, Declared
from shared.invariants.view import View
from shared.model.assignment import Assignment, Instance
from shared.model.function import Function, FunctionAccess
from shared.model.pool import Pool, PoolPlacement
from shared.model.route import FunctionRoute
from shared.subjects import ACCESS, ASSIGNMENT, FUNCTION, INSTANCE, PLACEMENT, POOL, ROUTE_FUNCTION, Key

from .function_users import LIMIT, NS
from .log import Log
from .room import Room

SIGNATURE_DIGITS = 16


def unmet_placements(log: Log) -> str:
    """What is not yet as the policy says; empty once all is."""
    functions, placements, pools = log.current(FUNCTION), log.current(PLACEMENT), log.current(POOL)
    if placements.keys() != functions.keys():
        return f"placed are {sorted(placements)}, declared {sorted(functions)}"
    declared = [Declared(key[1], _pool_of(log, key)) for key in functions]
    for each in declared:
        assert each.key is not None
        found = ByName().assign(each, each.key, declared, LIMIT)
        placement = placements[NS, each.name]
        assert isinstance(placement, PoolPlacement)
        if (placement.pool, placement.rejected, placement.queued_for) != (str(each.key), found.rejected, ""):
            return f"{each.name} is to be in {each.key}: {placement}"
        pool = pools.get(each.key)
        if isinstance(pool, Pool) and (each.name in pool.members) == found.rejected:
            return f"{each.key} has {pool.members}, {each.name} {'is rejected' if found.rejected else 'is missing'}"
    members = sum(len(pool.members) for pool in pools.values() if isinstance(pool, Pool))
    admitted = sum(not p.rejected for p in placements.values() if isinstance(p, PoolPlacement))
    return "" if members == admitted else f"{members} members, {admitted} admitted"


def _pool_of(log: Log, key: Key) -> PoolKey:
    function, access = log.record(FUNCTION, key), log.record(ACCESS, key)
    assert isinstance(function, Function)
    return pool_of(NS, key[1], function, access if isinstance(access, FunctionAccess) else None)


def unmet_workers(log: Log, view: View, room: Room) -> str:
    """Every pool with members has its one worker, of its present signature, and functions are routed where they are
    ready."""
    pools = {key: pool for key, pool in log.current(POOL).items() if isinstance(pool, Pool)}
    workers = [(p, a) for p, a in view.all(ASSIGNMENT, Assignment).items() if a.workload.kind == "pool"]
    for place, assignment in workers:
        pool = pools.get(tuple(assignment.workload.key.split("/")))
        wanted = pool.signature[:SIGNATURE_DIGITS] if pool is not None and pool.desired else None
        keeps = assignment.desired == "run" and assignment.deployment == wanted
        if not keeps and (wanted is None or _serves(view, assignment.workload.key, wanted, workers)):
            return f"worker {place[1]} of pool {assignment.workload.key} is still there, {assignment.desired}"
    for key, pool in pools.items():
        serves = _serves(view, "/".join(key), pool.signature[:SIGNATURE_DIGITS], workers)
        if pool.desired and not serves and room.for_resources(pool.resources):
            return f"pool {'/'.join(key)} has no healthy worker, and there is room"
    return _unmet_routes(log, view, pools, workers)


def _serves(view: View, key: str, signature: str, workers: list[tuple[Key, Assignment]]) -> bool:
    return any(
        a.workload.key == key and a.deployment == signature and a.desired == "run" and view.healthy(place)
        for place, a in workers
    )


def _unmet_routes(log: Log, view: View, pools: dict[Key, Pool], workers: list[tuple[Key, Assignment]]) -> str:
    routes = log.current(ROUTE_FUNCTION)
    members = {(key[0], name) for key, pool in pools.items() for name in pool.members}
    if routes.keys() != members:
        return f"routed are the functions {sorted(routes)}, members of pools are {sorted(members)}"
    for key, route in routes.items():
        assert isinstance(route, FunctionRoute)
        ready = {
            place[1]
            for place, assignment in workers
            if assignment.workload.key == f"{key[0]}/{route.pool}"
            and assignment.desired == "run"
            and not view.lost(place[0])
            and _is_ready(view, place, key[1])
        }
        if {endpoint.assignment for endpoint in route.endpoints} != ready:
            return f"function {'/'.join(key)} is routed to {route.endpoints}, ready are {sorted(ready)}"
    return ""


def _is_ready(view: View, place: Key, name: str) -> bool:
    instance = view.get(INSTANCE, place, Instance)
    up = instance is not None and instance.state in ("running", "healthy")
    return instance is not None and up and instance.members.get(name) == "ready"
