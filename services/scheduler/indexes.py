"""`fold`: one version of one record into the state and its indexes, marking what has to be looked at."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar

from services.scheduler.immutable import sync_contradicted
from services.scheduler.policy import policy_of
from services.scheduler.state import FLEET_TARGET, REMEMBERED, SERVICE, State, Target
from services.scheduler.workload import workload_id
from shared import subjects
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment
from shared.model.node import Node, NodeControl, NodeStatus
from shared.model.release import DeployRequest, Release
from shared.model.volume import VolumeStatus
from shared.service import Version
from shared.subjects import Key, Kind

_HISTORY = frozenset({subjects.RELEASE, subjects.DEPLOY, subjects.DEPLOYMENT})
_VOLUMES = frozenset({subjects.VOLUME, subjects.VOLUME_STATUS})
_OF_ENVIRONMENT = (
    _HISTORY | _VOLUMES | {subjects.ENVIRONMENT, subjects.ACTIVE, subjects.SCALE, subjects.ROUTED_ENVIRONMENT}
)
_SCALING = frozenset({subjects.ENVIRONMENT, subjects.RELEASE, subjects.ACTIVE})
LITTLE_HISTORY = 10
"""So few releases, requests and deployments in all are kept whatever they are."""
_RETAINED = _HISTORY | {subjects.ACTIVE}
_TEXTS = frozenset({subjects.DECISION, subjects.NOTICE})
_OF_NODE = frozenset({subjects.NODE, subjects.NODE_STATUS, subjects.NODE_CONTROL})

G = TypeVar("G", bound=Hashable)
E = TypeVar("E", bound=Hashable)


def fold(state: State, version: Version) -> None:
    """Put one version of one record into the state. Total and idempotent; ignores what the scheduler does not read."""
    kind, key, sequence = version.kind, version.key, version.sequence
    table = state.tables.get(kind)
    if table is None or (kind in _TEXTS and key[0] != SERVICE):
        return
    if sequence > state.sequence:  # noqa: PLR1730 - for every record, and max() is a call
        state.sequence = sequence
    old = table.get(key)
    if old is not None and old.sequence >= sequence:
        return
    if version.record is None and kind not in REMEMBERED:
        table.pop(key, None)
    else:
        table[key] = version if kind is not subjects.DEPLOYMENT else _kept(version)
    index = _INDEX.get(kind)
    if index is not None:
        index(state, version, old)


def _kept(version: Version) -> Version:
    """How a deployment came to its end is for people, who read it in the log: there are many, and nothing is decided by
    it."""
    record = version.record
    if isinstance(record, Deployment) and record.terminal:
        return version._replace(record=record.replaced(transitions=()))
    return version


def target_of(ref: WorkloadRef) -> Target:
    return _target(ref.kind, ref.key)


@lru_cache(4096)
def _target(kind: str, key: str) -> Target:
    """The replicas of a workload, and what is heard of them, come close together in the log."""
    return (kind, *key.split("/"))


def _index_environment(state: State, version: Version, old: Version | None) -> None:
    kind, key = version.kind, version.key
    environment = key[:3]
    if kind in _HISTORY:
        _member(state.history_of, environment, (kind, key), version.record is not None)
    if kind in (subjects.DEPLOY, subjects.DEPLOYMENT):
        _member(state.open_of, environment, key[3], _open(state, key))
    if kind in _VOLUMES:
        _member(state.volumes_of, environment, key, any(key in state.tables[volume] for volume in _VOLUMES))
        state.mark(("volume", *key))
    if kind is subjects.VOLUME_STATUS:
        _index_pin(state, version, old)
    if kind is subjects.RELEASE:
        sync_contradicted(state, key)
    elif isinstance(version.record, Deployment):
        named = (*environment, version.record.version)
        if state.sequence_of(subjects.RELEASE, named) > version.record.requested_at_sequence:
            sync_contradicted(state, named)  # only what came after the request can be another one
    if kind in _SCALING:
        _sync_demand(state, environment)
    release = version.record
    if isinstance(release, Release) and release.build is not None:
        _member(state.awaits_build, (*key[:2], release.build), environment, True)
        _member(state.built_of, key[:2], environment, True)
    if kind in _RETAINED and len(state.history_of.get(environment, ())) > LITTLE_HISTORY:
        state.mark(("retention", *environment))
    state.mark(("environment", *environment))


def _index_pin(state: State, version: Version, old: Version | None) -> None:
    for each, here in ((old, False), (version, True)):
        if each is not None and isinstance(each.record, VolumeStatus):
            _member(state.pinned_on, each.record.node, version.key, here)


def _index_snapshot(state: State, version: Version, old: Version | None) -> None:
    key, here = version.key, version.record is not None
    if version.kind is subjects.SNAPSHOT_PRUNE:
        _member(state.prunes_of, key[1:], key, here)
    elif version.kind is subjects.SNAPSHOT_ORDER:
        _member(state.orders_of, key[1:5], key, here)
    state.mark(("volume", *key[1:5]))


def _index_sweep(state: State, version: Version, old: Version | None) -> None:
    state.mark(("image_sweep", *version.key))


def _index_build(state: State, version: Version, old: Version | None) -> None:
    for environment in state.awaits_build.get(version.key, ()):
        state.mark(("environment", *environment))


def _index_pool(state: State, version: Version, old: Version | None) -> None:
    state.mark(("pool", *version.key))


def _index_fleet(state: State, version: Version, old: Version | None) -> None:
    state.mark(FLEET_TARGET)


def _index_instance(state: State, version: Version, old: Version | None) -> None:
    if _gone(old) != _gone(version):
        assignment = state.tables[subjects.ASSIGNMENT].get(version.key)
        _sync_reservation(state, version.key, _reservation(assignment, old), _reservation(assignment, version))
    _mark_replica(state, version.key)


def _sync_demand(state: State, environment: Key) -> None:
    spec = state.get(subjects.ENVIRONMENT, environment, Environment)
    active = state.get(subjects.ACTIVE, environment, ActiveRelease)
    release = state.get(subjects.RELEASE, (*environment, active.version), Release) if active is not None else None
    if spec is not None and release is not None and policy_of(spec, release.service) in ("concurrency", "idle"):
        state.follows_demand.add(environment)
    else:
        state.follows_demand.discard(environment)


def _index_activation(state: State, version: Version, old: Version | None) -> None:
    environment = version.key[1:]
    latest = state.activations.get(environment)
    if version.record is not None and (latest is None or latest.sequence < version.sequence):
        state.activations[environment] = version
    state.mark(("environment", *environment))


def _open(state: State, key: Key) -> bool:
    """Whether a request, or what became of it, still needs a look."""
    deployment = state.get(subjects.DEPLOYMENT, key, Deployment)
    if deployment is not None:
        return not deployment.terminal
    return state.get(subjects.DEPLOY, key, DeployRequest) is not None


def _index_assignment(state: State, version: Version, old: Version | None) -> None:
    key = version.key
    record = version.record if version.record is not None else (old.record if old is not None else None)
    if isinstance(record, Assignment):
        target = target_of(record.workload)
        here = version.record is not None
        _member(state.replicas_of, target, key, here)
        _member(state.replicas_on, key[0], key, here)
        _member(state.draining, target, key, here and record.desired == "drain")
        state.mark(target)
    instance = state.tables[subjects.INSTANCE].get(key)
    _sync_reservation(state, key, _reservation(old, instance), _reservation(version, instance))
    if key[0] in state.draining_nodes or state.deleted(subjects.NODE, (key[0],)):
        state.mark(("node", key[0]))


def _index_node(state: State, version: Version, old: Version | None) -> None:
    (name,) = version.key
    status = state.get(subjects.NODE_STATUS, version.key, NodeStatus)
    control = state.get(subjects.NODE_CONTROL, version.key, NodeControl)
    down = (status is not None and status.state == "down") or state.deleted(subjects.NODE, version.key)
    (state.gone_nodes.add if down else state.gone_nodes.discard)(name)
    (state.draining_nodes.add if control is not None and control.drain else state.draining_nodes.discard)(name)
    _sync_node(state, name)
    state.mark(("node", name))
    if version.kind is subjects.NODE:
        if (version.record is None) != (old is None or old.record is None):
            state.mark(FLEET_TARGET)
        elif version.record is not None:
            return  # what a node offers changes nothing for the replicas that it has
    for replica in state.replicas_on.get(name, ()):
        _mark_replica(state, replica)
    for volume in state.pinned_on.get(name, ()):
        state.mark(("environment", *volume[:3]))


def _mark_replica(state: State, key: Key) -> None:
    assignment = state.get(subjects.ASSIGNMENT, key, Assignment)
    if assignment is not None:
        state.mark(target_of(assignment.workload))
    elif state.deleted(subjects.NODE, (key[0],)):
        state.mark(("node", key[0]))


def _gone(instance: Version | None) -> bool:
    seen = instance.record if instance is not None else None
    return isinstance(seen, Instance) and seen.state in ("failed", "stopped")


def _reservation(assignment: Version | None, instance: Version | None) -> tuple[str, int, int] | None:
    """Workload, millicores and MiB. A replica reserves until it is gone; a deleted assignment reserves nothing."""
    wanted = assignment.record if assignment is not None else None
    if not isinstance(wanted, Assignment) or _gone(instance):
        return None
    resources = wanted.resources.effective()
    return workload_id(wanted.workload), resources.cpu_millis, resources.memory_mb


def _sync_reservation(
    state: State, key: Key, held: tuple[str, int, int] | None, wanted: tuple[str, int, int] | None
) -> None:
    if held == wanted:
        return
    if held is not None:
        state.cluster.release(key[0], *held)
    if wanted is not None:
        state.cluster.reserve(key[0], *wanted)
    if held is not None:
        _capacity_changed(state, key[0])


def _sync_node(state: State, name: str) -> None:
    node = state.get(subjects.NODE, (name,), Node)
    if node is None:
        state.cluster.remove_node(name)
        return
    capacity = node.capacity
    state.cluster.set_node(
        name, node.labels, node.platform, capacity.cpu_millis, capacity.memory_mb, state.unavailable(name)
    )
    _capacity_changed(state, name)


def _capacity_changed(state: State, node: str) -> None:
    """A node may take more than before: look again at what it could cure, and at what is being looked at just now."""
    state.capacity_marks += 1
    for name in state.waiting.cured_by(node):
        state.mark(tuple(name.partition("#")[0].split("/")))


def _member(index: dict[G, dict[E, None]], group: G, key: E, here: bool) -> None:
    if here:
        index.setdefault(group, {})[key] = None
    elif group in index:
        index[group].pop(key, None)
        if not index[group]:
            del index[group]


_INDEX: dict[Kind, Callable[[State, Version, Version | None], None]] = {
    **dict.fromkeys(_OF_ENVIRONMENT, _index_environment),
    **dict.fromkeys(_OF_NODE, _index_node),
    subjects.BUILD_STATUS: _index_build,
    subjects.SNAPSHOT_ORDER: _index_snapshot,
    subjects.SNAPSHOT_REPORT: _index_snapshot,
    subjects.SNAPSHOT_PRUNE: _index_snapshot,
    subjects.IMAGE_SWEEP: _index_sweep,
    subjects.IMAGE_SWEPT: _index_sweep,
    subjects.POOL: _index_pool,
    subjects.ROUTED_POOL: _index_pool,
    subjects.ACTIVATION: _index_activation,
    subjects.ASSIGNMENT: _index_assignment,
    subjects.INSTANCE: _index_instance,
    subjects.FLEET: _index_fleet,
}
