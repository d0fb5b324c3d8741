"""`fold`: one version of one record into the state. Total, idempotent; per subject the highest sequence wins.

The handlers of foreign kinds are here, those of our own records in `written`. Each compares the fact before and after,
and touches what depends on it only where they differ.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import cast

from services.routes import written
from services.routes.pools import POOL_TOKENS, fold_loaded, fold_placement, fold_pool, port_of, touch_pool
from services.routes.world import (
    FOREIGN,
    Active,
    Env,
    Item,
    Place,
    Policy,
    Replica,
    State,
    domain_env,
    drop,
    touch,
    touch_environment,
)
from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import ActiveRelease
from shared.model.domain import Domain
from shared.model.node import Node, NodeStatus
from shared.model.release import Release
from shared.service import Sample, Version
from shared.subjects import ACTIVE, ASSIGNMENT, DOMAIN, ENVIRONMENT, INSTANCE, NODE, NODE_STATUS, RELEASE, Key, Kind

__all__ = ["State", "attend", "fold", "observe"]

_CHURNING = frozenset({ASSIGNMENT, INSTANCE})
_TOMBSTONES_REMEMBERED = 50_000
ENVIRONMENT_TOKENS = 3


def fold(state: State, version: Version) -> None:
    """Put one version of one record into the state. Per subject the highest sequence wins."""
    kind, key, sequence, record, _, _ = version
    take = _FOLDS.get(kind)
    if take is None:
        return
    sequences = state.sequences[kind.name]
    if sequence <= sequences.get(key, 0):
        return
    sequences[key] = sequence
    # What this service itself has published again is folded ahead of foreign records that were stored before it.
    if sequence > state.covers and kind in FOREIGN and not version.restores:
        state.covers = sequence
    take(state, version)
    if record is None and kind in _CHURNING:
        _forget_old_tombstones(state, (kind.name, key))


def _forget_old_tombstones(state: State, item: Item) -> None:
    """Ids never repeat, so the sequence of a deleted assignment only guards against a late echo: keep the newest."""
    state.tombstones.append(item)
    if len(state.tombstones) > _TOMBSTONES_REMEMBERED:
        name, key = state.tombstones.popleft()
        state.sequences[name].pop(key, None)


def _fold_environment(state: State, version: Version) -> None:
    existed = state.exists(version.key)
    state.environments[version.key] = version.record is not None
    if state.exists(version.key) != existed:
        _reclaim(state, version.key, version)
    if version.record is None:
        touch_environment(state, version.key, version)


def _fold_release(state: State, version: Version) -> None:
    before = state.policies.pop(version.key, None)
    if version.record is not None:
        spec = cast(Release, version.record).service
        state.policies[version.key] = Policy(spec.run.ports, spec.scale_to_zero, spec.max_concurrency, spec.rate_limit)
    env, number = version.key[:3], version.key[3]
    active = state.actives.get(env)
    if active and active.record.version == number and before != state.policies.get(version.key):
        _reclaim(state, env, version)


def _fold_active(state: State, version: Version) -> None:
    state.actives.pop(version.key, None)
    if version.record is not None:
        state.actives[version.key] = Active(version.sequence, cast(ActiveRelease, version.record))
    _reclaim(state, version.key, version)


def _reclaim(state: State, env: Env, version: Version) -> None:
    """Bring up to date which implicit host and public ports the environment claims."""
    claims: set[Item] = set()
    if state.exists(env):
        if host := state.implicit_host(env):
            claims.add((subjects.ROUTE_HOST.name, subjects.host_key(host)))
        for port in state.policy(env).ports:
            if port.public_l4_port:
                claims.add((subjects.ROUTE_L4.name, (str(port.public_l4_port),)))
    before = state.claims.pop(env, frozenset())
    if claims:
        state.claims[env] = frozenset(claims)
    for item in before - claims:
        drop(state.claimants, item, env)
    for item in claims - before:
        state.claimants.setdefault(item, set()).add(env)
    touch_environment(state, env, version)
    touch(state, before ^ claims, version)


def _fold_domain(state: State, version: Version) -> None:
    before = state.domains.pop(version.key, None)
    if before is not None:
        drop(state.domains_of, domain_env(version.key, before), version.key)
        drop(state.domains_at, subjects.host_key(before.hostname), version.key)
    if version.record is not None:
        domain = state.domains[version.key] = cast(Domain, version.record)
        state.domains_of.setdefault(domain_env(version.key, domain), set()).add(version.key)
        state.domains_at.setdefault(subjects.host_key(domain.hostname), set()).add(version.key)
    hosts = {domain.hostname for domain in (before, state.domains.get(version.key)) if domain is not None}
    touch(state, [(subjects.ROUTE_HOST.name, subjects.host_key(host)) for host in hosts], version)


def _fold_assignment(state: State, version: Version) -> None:
    place = cast(Place, version.key)
    before = state.replicas.pop(place, None)
    after = None
    if version.record is not None:
        after = state.replicas[place] = _replica(state, cast(Assignment, version.record), version.sequence)
    if before == after:
        return
    if before is not None and before.env is not None:
        drop(state.replicas_of, before.env, place)
        drop(state.replicas_on, place[0], place)
        _touch_workload(state, before.env, version)
    if after is not None and after.env is not None:
        state.replicas_of.setdefault(after.env, set()).add(place)
        state.replicas_on.setdefault(place[0], set()).add(place)
        _touch_workload(state, after.env, version)


def _replica(state: State, assignment: Assignment, sequence: int) -> Replica:
    pooled = assignment.workload.kind == "pool"
    key: Env = tuple(assignment.workload.key.split("/"))
    for place in state.replicas_of.get(key, ()):
        other = state.replicas.get(place)
        if other is not None and other.env is not None:
            key = other.env  # one object for all replicas of a workload
            break
    return Replica(
        env=key if len(key) == (POOL_TOKENS if pooled else ENVIRONMENT_TOKENS) else None,
        release=assignment.release,
        deployment=assignment.deployment,
        desired=assignment.desired,
        drain=sequence if assignment.desired == "drain" else 0,
        port=port_of(assignment) if pooled else "",
    )


def _fold_instance(state: State, version: Version) -> None:
    """An id names one incarnation and never repeats: an instance under it answers that assignment, in any version."""
    place = cast(Place, version.key)
    before = state.bound.pop(place, None)
    instance = cast(Instance | None, version.record)
    if instance is not None and instance.state == "healthy":
        state.bound[place] = tuple(instance.ports.items())
    if before != state.bound.get(place):
        _touch_replica(state, place, version)
    fold_loaded(state, place, instance, version)


def _fold_node(state: State, version: Version) -> None:
    before = state.addresses.pop(version.key[0], None)
    if version.record is not None:
        state.addresses[version.key[0]] = cast(Node, version.record).address
    if before != state.addresses.get(version.key[0]):
        _touch_replicas_on(state, version.key[0], version)


def _fold_node_status(state: State, version: Version) -> None:
    status = cast(NodeStatus | None, version.record)
    down = status is not None and status.state == "down"
    if down == (version.key[0] in state.down):
        return
    (state.down.add if down else state.down.discard)(version.key[0])
    _touch_replicas_on(state, version.key[0], version)


def _touch_replicas_on(state: State, node: str, version: Version) -> None:
    for place in state.replicas_on.get(node, ()):
        _touch_replica(state, place, version)


def _touch_replica(state: State, place: Place, version: Version) -> None:
    replica = state.replicas.get(place)
    if replica is not None and replica.env is not None:
        _touch_workload(state, replica.env, version)


def _touch_workload(state: State, key: Key, version: Version) -> None:
    if len(key) == ENVIRONMENT_TOKENS:
        touch_environment(state, key, version)
    else:
        touch_pool(state, key, version)


_FOLDS: Mapping[Kind, Callable[[State, Version], None]] = {
    ENVIRONMENT: _fold_environment,
    RELEASE: _fold_release,
    DOMAIN: _fold_domain,
    ACTIVE: _fold_active,
    ASSIGNMENT: _fold_assignment,
    INSTANCE: _fold_instance,
    NODE: _fold_node,
    NODE_STATUS: _fold_node_status,
    subjects.POOL: fold_pool,
    subjects.PLACEMENT: fold_placement,
    subjects.ROUTE_HOST: written.fold_route,
    subjects.ROUTE_L4: written.fold_route,
    subjects.ROUTE_INTERNAL: written.fold_route,
    subjects.ROUTE_FUNCTION: written.fold_route,
    subjects.ROUTE_MANIFEST: written.fold_manifest,
    subjects.ROUTED_ENVIRONMENT: written.fold_routed,
    subjects.ROUTED_POOL: written.fold_routed,
    subjects.NOTICE: written.fold_notice,
}


def observe(state: State, sample: Sample, received_at: datetime) -> None:
    """Routes takes no telemetry."""


def attend(state: State, now: datetime) -> None:
    """Routes takes no telemetry."""
