"""Functions: the pool workers in which each of them is ready.

An endpoint is a worker that is meant to run, whose host says that it has loaded the function, on a node that is not down.
Whether the host as a whole is healthy does not matter: a member that loads slowly holds up nobody else. While a function
moves between pools it is a member of both; once it is ready where it is placed, that pool alone serves it.

A function has a route as long as a pool has it as a member. A pool of which no record says anything is held: the route
that leads there stays; only a tombstone ends it.
"""

from collections.abc import Iterator

from services.routes.serving import MAX_ENDPOINTS, endpoint
from services.routes.world import Item, Place, State, number_of
from services.routes.written import in_force
from shared.model.route import Endpoint, FunctionRoute
from shared.subjects import POOL, ROUTE_FUNCTION, ROUTED_POOL, Key


def function(state: State, item: Item) -> FunctionRoute | None:
    """The route of a function; None where no pool has it."""
    namespace, name = item[1]
    pools = _in_order(state, item[1])
    if not pools:
        return _held(state, item)
    for pool in pools:
        if endpoints := _endpoints(state, pool, name):
            return FunctionRoute(namespace=namespace, function=name, pool="/".join(pool[1:]), endpoints=endpoints)
    return FunctionRoute(namespace=namespace, function=name, pool="/".join(pools[0][1:]))


def led_to(state: State, pool: Key) -> Iterator[Item]:
    """What depends on the workers of a pool: the routes of its members, and what is said of its drains."""
    yield ROUTED_POOL.name, pool
    for name in state.pools.get(pool, ()):
        yield ROUTE_FUNCTION.name, (pool[0], name)


def obstacle(state: State, place: Place, name: str) -> str:
    """Why a worker is no endpoint of a function; empty if it is one."""
    replica, loaded = state.replicas[place], state.loaded.get(place)
    if replica.desired != "run":
        return f"it is to {replica.desired}"
    if loaded is None or name not in loaded.members:
        return f"its host does not say that {name} is ready"
    if number_of(loaded.ports, replica.port) is None:
        return "its host has no http port"
    if place[0] in state.down:
        return f"node {place[0]} is down"
    if place[0] not in state.addresses:
        return f"node {place[0]} has no record, so its address is not known"
    return ""


def _in_order(state: State, key: Key) -> list[Key]:
    """The pools that have the function, that of its placement first."""
    placed = state.placed.get(key)
    return sorted(state.pools_of.get(key, ()), key=lambda pool: ("/".join(pool[1:]) != placed, pool))


def _endpoints(state: State, pool: Key, name: str) -> tuple[Endpoint, ...]:
    places = sorted(state.replicas_of.get(pool, ()), key=lambda place: (place[1], place[0]))
    ready = [place for place in places if obstacle(state, place, name) == ""]
    return tuple(
        endpoint(state, place, number_of(state.loaded[place].ports, state.replicas[place].port) or 0)
        for place in ready[:MAX_ENDPOINTS]
    )


def _held(state: State, item: Item) -> FunctionRoute | None:
    route = in_force(state, item)
    if not isinstance(route, FunctionRoute):
        return None
    pool = (item[1][0], *route.pool.split("/"))
    return None if pool in state.sequences[POOL.name] else route
