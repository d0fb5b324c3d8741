"""What the scheduler knows: the records it reads, and the indexes that keep the cost of a decision at what changed.

`fold` puts one version of one record in and marks the targets that have to be looked at: an environment, a node, the
fleet. Indexes are derived from the records alone, so the order between different subjects does not matter. `settle` takes
the marks away that a committed pass has looked at, unless something has changed since, and notes when to look again.

Telemetry (`observe`) never mixes with the records: it is kept beside them with the time of its receipt.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel
from sortedcontainers import SortedDict, SortedSet

from services.scheduler.placement import Cluster, Request
from services.scheduler.waiting import Waiting
from services.scheduler.workload import workload_id
from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import Deployment
from shared.model.live import NodeSample, ProxySample
from shared.model.node import Node, NodeControl, NodeStatus
from shared.model.release import DeployRequest
from shared.service import Plan, Sample, Version
from shared.subjects import Key, Kind

SERVICE = "scheduler"
Target = tuple[str, ...]
"""`("environment", project, app, environment)`, `("node", name)` or `("fleet",)`."""

MAX_WAITING = 2
"""What one environment can wait for at a time: a place for its own replicas, and one for those of a deployment."""

FLEET_TARGET: Target = ("fleet",)
READS: tuple[Kind, ...] = (
    subjects.ENVIRONMENT, subjects.RELEASE, subjects.DEPLOY, subjects.NODE_CONTROL,
    subjects.NODE, subjects.INSTANCE,
    subjects.FLEET, subjects.NODE_STATUS, subjects.ASSIGNMENT, subjects.DEPLOYMENT, subjects.ACTIVE, subjects.SCALE,
    subjects.ROUTED_ENVIRONMENT,
    subjects.DECISION, subjects.NOTICE,
)  # fmt: skip
REMEMBERED = frozenset({subjects.ENVIRONMENT, subjects.NODE})
"""Kinds whose tombstone says something: no record at all means hold, only a tombstone tears down."""

_OF_ENVIRONMENT = frozenset({
    subjects.ENVIRONMENT, subjects.RELEASE, subjects.DEPLOY, subjects.DEPLOYMENT, subjects.ACTIVE, subjects.SCALE,
    subjects.ROUTED_ENVIRONMENT,
})  # fmt: skip

_HISTORY = frozenset({subjects.RELEASE, subjects.DEPLOY, subjects.DEPLOYMENT})

M = TypeVar("M", bound=BaseModel)
G = TypeVar("G", bound=Hashable)
E = TypeVar("E", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Look:
    """What a pass found out about one target: when to look again, and what it could not place.

    `mark` and `capacity` are the marks that the pass saw: where they have moved since, the target is looked at again.
    """

    mark: int | None
    capacity: int
    wake_at: datetime | None = None
    waiting: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class ProxyHeard:
    version: int
    error: str
    at: datetime


class State:
    """See the module. All of it is private to the scheduler; `decide` reads it and changes nothing."""

    def __init__(self) -> None:
        self.sequence = 0
        self.tables: dict[Kind, dict[Key, Version]] = {kind: {} for kind in READS}
        self.cluster = Cluster()
        self.waiting = Waiting(self.cluster)
        self.replicas_of: dict[Key, set[Key]] = {}
        self.replicas_on: dict[str, set[Key]] = {}
        self.history_of: dict[Key, set[tuple[Kind, Key]]] = {}
        """The releases, requests and deployments of an environment."""
        self.open_of: dict[Key, set[str]] = {}
        """The ids of an environment's requests that are not done with."""
        self.reserved: dict[Key, tuple[str, int, int]] = {}
        self.draining: dict[Key, set[Key]] = {}
        self.heard: dict[str, datetime] = {}
        self.proxies: dict[str, ProxyHeard] = {}
        self.attended_at: datetime | None = None
        self.dirty: SortedDict[Target, int] = SortedDict()
        self.due: SortedSet[tuple[datetime, Target]] = SortedSet()
        self.due_at: dict[Target, datetime] = {}
        self.marks = 0
        self.capacity_marks = 0

    def get(self, kind: Kind, key: Key, model: type[M]) -> M | None:
        """The record under a key, None where there is none or it is deleted."""
        version = self.tables[kind].get(key)
        return version.record if version is not None and isinstance(version.record, model) else None

    def sequence_of(self, kind: Kind, key: Key) -> int:
        version = self.tables[kind].get(key)
        return version.sequence if version is not None else 0

    def deleted(self, kind: Kind, key: Key) -> bool:
        """Whether a tombstone says so; never having existed is not being deleted."""
        version = self.tables[kind].get(key)
        return version is not None and version.record is None

    def node_gone(self, node: str) -> bool:
        """Down, or decommissioned: what ran there is lost."""
        status = self.get(subjects.NODE_STATUS, (node,), NodeStatus)
        return (status is not None and status.state == "down") or self.deleted(subjects.NODE, (node,))

    def mark(self, target: Target) -> None:
        self.marks += 1
        self.dirty[target] = self.marks


def fold(state: State, version: Version) -> None:
    """Put one version of one record into the state. Total and idempotent; ignores what the scheduler does not read."""
    table = state.tables.get(version.kind)
    if table is None or (version.kind in (subjects.DECISION, subjects.NOTICE) and version.key[0] != SERVICE):
        return
    state.sequence = max(state.sequence, version.sequence)
    old = table.get(version.key)
    if old is not None and old.sequence >= version.sequence:
        return
    if version.record is None and version.kind not in REMEMBERED:
        table.pop(version.key, None)
    else:
        table[version.key] = version
    _index(state, version, old)


def _index(state: State, version: Version, old: Version | None) -> None:
    kind, key = version.kind, version.key
    if kind in _OF_ENVIRONMENT:
        environment = key[:3]
        if kind in _HISTORY:
            _member(state.history_of, environment, (kind, key), version.record is not None)
        if kind in (subjects.DEPLOY, subjects.DEPLOYMENT):
            _member(state.open_of, environment, key[3], _open(state, key))
        state.mark(("environment", *environment))
    elif kind is subjects.ASSIGNMENT:
        _index_assignment(state, version, old)
    elif kind is subjects.INSTANCE:
        _sync_reservation(state, key)
        _mark_replica(state, key)
    elif kind in (subjects.NODE, subjects.NODE_STATUS, subjects.NODE_CONTROL):
        _index_node(state, key[0], kind, version, old)
    elif kind is subjects.FLEET:
        state.mark(FLEET_TARGET)


def _open(state: State, key: Key) -> bool:
    """Whether a request, or what became of it, still needs a look."""
    deployment = state.get(subjects.DEPLOYMENT, key, Deployment)
    if deployment is not None:
        return not deployment.terminal
    return state.get(subjects.DEPLOY, key, DeployRequest) is not None


def _index_assignment(state: State, version: Version, old: Version | None) -> None:
    key = version.key
    record = version.record if version.record is not None else (old.record if old is not None else None)
    if isinstance(record, Assignment) and record.workload.kind == "environment":
        environment = tuple(record.workload.key.split("/"))
        here = version.record is not None
        _member(state.replicas_of, environment, key, here)
        _member(state.replicas_on, key[0], key, here)
        _member(state.draining, environment, key, here and record.desired == "drain")
        state.mark(("environment", *environment))
    _sync_reservation(state, key)
    control = state.get(subjects.NODE_CONTROL, (key[0],), NodeControl)
    if (control is not None and control.drain) or state.deleted(subjects.NODE, (key[0],)):
        state.mark(("node", key[0]))


def _index_node(state: State, name: str, kind: Kind, version: Version, old: Version | None) -> None:
    _sync_node(state, name)
    state.mark(("node", name))
    if kind is subjects.NODE:
        if (version.record is None) != (old is None or old.record is None):
            state.mark(FLEET_TARGET)
        if version.record is not None and old is not None:
            return
    for replica in state.replicas_on.get(name, ()):
        _mark_replica(state, replica)


def _mark_replica(state: State, key: Key) -> None:
    assignment = state.get(subjects.ASSIGNMENT, key, Assignment)
    if assignment is not None and assignment.workload.kind == "environment":
        state.mark(("environment", *assignment.workload.key.split("/")))
    elif state.deleted(subjects.NODE, (key[0],)):
        state.mark(("node", key[0]))


def _sync_reservation(state: State, key: Key) -> None:
    """A replica reserves until it is gone: failed or stopped ones and deleted assignments do not."""
    assignment = state.get(subjects.ASSIGNMENT, key, Assignment)
    instance = state.get(subjects.INSTANCE, key, Instance)
    wanted: tuple[str, int, int] | None = None
    if assignment is not None and not (instance is not None and instance.state in ("failed", "stopped")):
        resources = assignment.resources.effective()
        wanted = (workload_id(assignment.workload), resources.cpu_millis, resources.memory_mb)
    held = state.reserved.get(key)
    if held == wanted:
        return
    if held is not None:
        state.cluster.release(key[0], *held)
        del state.reserved[key]
    if wanted is not None:
        state.cluster.reserve(key[0], *wanted)
        state.reserved[key] = wanted
    if held is not None:
        _capacity_changed(state, key[0])


def _sync_node(state: State, name: str) -> None:
    node = state.get(subjects.NODE, (name,), Node)
    if node is None:
        state.cluster.remove_node(name)
        return
    state.cluster.set_node(
        name,
        node.labels,
        node.platform,
        node.capacity.cpu_millis,
        node.capacity.memory_mb,
        unavailable(state, name),
    )
    _capacity_changed(state, name)


def unavailable(state: State, name: str) -> str:
    """Why a node takes no new replicas; empty where it does."""
    status = state.get(subjects.NODE_STATUS, (name,), NodeStatus)
    control = state.get(subjects.NODE_CONTROL, (name,), NodeControl) or NodeControl()
    if status is None:
        return "joining"
    if status.state != "alive":
        return status.state
    if control.drain:
        return "draining"
    return "" if control.schedulable else "cordoned"


def _capacity_changed(state: State, node: str) -> None:
    """A node may take more than before: look again at what it could cure, and at what is being looked at just now."""
    state.capacity_marks += 1
    for name in state.waiting.cured_by(node):
        state.mark(tuple(name.partition("#")[0].split("/")))


def _member(index: dict[G, set[E]], group: G, key: E, here: bool) -> None:
    if here:
        index.setdefault(group, set()).add(key)
    elif group in index:
        index[group].discard(key)
        if not index[group]:
            del index[group]


def observe(state: State, sample: Sample, received_at: datetime) -> None:
    """Take a heartbeat of a node or the report of a proxy."""
    if isinstance(sample.body, NodeSample):
        state.heard[sample.name] = received_at
        status = state.get(subjects.NODE_STATUS, (sample.name,), NodeStatus)
        if status is not None and status.state != "alive":
            state.mark(("node", sample.name))
    elif isinstance(sample.body, ProxySample):
        before = state.proxies.get(sample.name)
        state.proxies[sample.name] = ProxyHeard(sample.body.version, sample.body.error, received_at)
        if before is None or (before.version, before.error) != (sample.body.version, sample.body.error):
            for environment in state.draining:
                state.mark(("environment", *environment))


def attend(state: State, now: datetime) -> None:
    """Telemetry is heard from `now` on: nobody is silent for a time in which nobody listened."""
    state.attended_at = now
    state.heard.clear()
    state.proxies.clear()
    for target in [("node", *key) for key in state.tables[subjects.NODE]]:
        state.mark(target)


def settle(state: State, plan: Plan, now: datetime) -> None:
    """A pass is done: take its marks away, except where something has changed since, and note when to look again."""
    looks: Iterable[tuple[Target, Look]] = plan.looks.items()
    for target, look in looks:
        cured = bool(look.waiting) and look.capacity != state.capacity_marks
        if cured:
            state.mark(target)
        elif look.mark is not None and state.dirty.get(target) == look.mark:
            del state.dirty[target]
        _set_due(state, target, look.wake_at)
        _set_waiting(state, "/".join(target), look.waiting)


def _set_waiting(state: State, name: str, requests: tuple[Request, ...]) -> None:
    for index in range(MAX_WAITING):
        if index < len(requests):
            state.waiting.add(replace(requests[index], workload=f"{name}#{index}"))
        else:
            state.waiting.discard(f"{name}#{index}")


def _set_due(state: State, target: Target, at: datetime | None) -> None:
    before = state.due_at.pop(target, None)
    if before is not None:
        state.due.discard((before, target))
    if at is not None:
        state.due_at[target] = at
        state.due.add((at, target))
