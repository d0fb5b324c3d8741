"""Pools and what their hosts say, folded: which functions are where, and in which workers they are ready."""

from typing import cast

from services.routes.functions import led_to
from services.routes.world import Loaded, Place, State, drop, touch
from shared.model.assignment import Assignment, Instance
from shared.model.pool import Pool, PoolPlacement
from shared.service import Version
from shared.subjects import ROUTE_FUNCTION, Key

POOL_TOKENS = 4
_UP = ("running", "healthy")


def fold_pool(state: State, version: Version) -> None:
    before = state.pools.pop(version.key, ())
    after: tuple[str, ...] = ()
    if version.record is not None:
        after = state.pools[version.key] = cast(Pool, version.record).members
    for name in before:
        drop(state.pools_of, (version.key[0], name), version.key)
    for name in after:
        state.pools_of.setdefault((version.key[0], name), set()).add(version.key)
    changed = set(before).symmetric_difference(after)
    touch(state, [(ROUTE_FUNCTION.name, (version.key[0], name)) for name in sorted(changed)], version)


def fold_placement(state: State, version: Version) -> None:
    before = state.placed.pop(version.key, None)
    record = cast(PoolPlacement | None, version.record)
    if record is not None and record.pool and not record.rejected:
        state.placed[version.key] = record.pool
    if before != state.placed.get(version.key) and version.key in state.pools_of:
        touch(state, [(ROUTE_FUNCTION.name, version.key)], version)


def fold_loaded(state: State, place: Place, instance: Instance | None, version: Version) -> None:
    """The members that are ready in a worker, as long as it is up."""
    before = state.loaded.pop(place, None)
    if instance is not None and instance.members and instance.state in _UP:
        ready = frozenset(name for name, said in instance.members.items() if said == "ready")
        state.loaded[place] = Loaded(tuple(instance.ports.items()), ready)
    if before == state.loaded.get(place):
        return
    replica = state.replicas.get(place)
    if replica is not None and replica.env is not None and len(replica.env) == POOL_TOKENS:
        touch_pool(state, replica.env, version)


def touch_pool(state: State, pool: Key, version: Version) -> None:
    """The workers of this pool have changed."""
    touch(state, tuple(led_to(state, pool)), version)


def port_of(assignment: Assignment) -> str:
    """The name of the port on which the functions of a pool are called: its first HTTP port."""
    return next((port.name for port in assignment.run.ports if port.protocol == "http"), "")
