"""What the scheduler knows: the records it reads, the indexes derived from them, and the telemetry beside them.

Indexes keep the cost of a decision at what changed: `indexes.index` maintains them and marks the targets that have to be
looked at. They are derived from the records alone, so the order between different subjects does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel
from sortedcontainers import SortedDict, SortedSet

from services.scheduler.placement import Cluster
from services.scheduler.waiting import Waiting
from services.scheduler.workload import Template, template
from shared import subjects
from shared.model.live import Demand, InstanceUsage
from shared.model.node import NodeControl, NodeStatus
from shared.model.release import Release
from shared.service import Version
from shared.subjects import Key, Kind

SERVICE = "scheduler"
Target = tuple[str, ...]
"""What is looked at: `("environment", project, app, environment)`, `("pool", …)`, `("node", name)` or `("fleet",)`."""

FLEET_TARGET: Target = ("fleet",)
READS: tuple[Kind, ...] = (
    subjects.ENVIRONMENT, subjects.RELEASE, subjects.DEPLOY, subjects.VOLUME, subjects.NODE_CONTROL,
    subjects.NODE, subjects.INSTANCE, subjects.ACTIVATION,
    subjects.FLEET, subjects.NODE_STATUS, subjects.ASSIGNMENT, subjects.DEPLOYMENT, subjects.ACTIVE, subjects.SCALE,
    subjects.VOLUME_STATUS,
    subjects.SNAPSHOT_ORDER, subjects.SNAPSHOT_REPORT, subjects.SNAPSHOT_PRUNE,
    subjects.IMAGE_SWEEP, subjects.IMAGE_SWEPT,
    subjects.POOL, subjects.BUILD_STATUS, subjects.ROUTED_ENVIRONMENT, subjects.ROUTED_POOL,
    subjects.DECISION, subjects.NOTICE,
)  # fmt: skip
REMEMBERED = frozenset({subjects.ENVIRONMENT, subjects.NODE, subjects.POOL})
"""Kinds whose tombstone says something: no record at all means hold, only a tombstone tears down."""

M = TypeVar("M", bound=BaseModel)
_mark_again = dict.__setitem__


@dataclass(frozen=True, slots=True)
class ProxyHeard:
    """The last report of a proxy, and when it was received."""

    version: int
    error: str
    at: datetime
    demand: Mapping[str, Demand]


@dataclass(frozen=True, slots=True)
class NodeHeard:
    """The last heartbeat of a node that carries usage, and when it was received."""

    at: datetime
    interval_seconds: float
    instances: Mapping[str, InstanceUsage]


@dataclass(eq=False)
class State:
    """Private to the scheduler; `decide` reads it and changes nothing."""

    sequence: int = 0
    tables: dict[Kind, dict[Key, Version]] = field(default_factory=lambda: {kind: {} for kind in READS})
    # indexes; a dict without values is a set in a third of the memory
    cluster: Cluster = field(default_factory=Cluster)
    replicas_of: dict[Target, dict[Key, None]] = field(default_factory=dict)
    replicas_on: dict[str, dict[Key, None]] = field(default_factory=dict)
    gone_nodes: set[str] = field(default_factory=set)
    """The nodes that are down or decommissioned."""
    draining_nodes: set[str] = field(default_factory=set)
    """The nodes that are to have no replicas."""
    draining: dict[Target, dict[Key, None]] = field(default_factory=dict)
    history_of: dict[Key, dict[tuple[Kind, Key], None]] = field(default_factory=dict)
    """The releases, requests and deployments of an environment."""
    awaits_build: dict[Key, dict[Key, None]] = field(default_factory=dict)
    """The environments with a release that a build makes: `(project, app, build)`."""
    built_of: dict[Key, dict[Key, None]] = field(default_factory=dict)
    """The environments of an app with a release that a build makes: `(project, app)`."""
    volumes_of: dict[Key, dict[Key, None]] = field(default_factory=dict)
    """The volumes of an environment, wanted or pinned."""
    pinned_on: dict[str, dict[Key, None]] = field(default_factory=dict)
    """The volumes whose status names a node."""
    orders_of: dict[Key, dict[Key, None]] = field(default_factory=dict)
    prunes_of: dict[Key, dict[Key, None]] = field(default_factory=dict)
    """The snapshot orders and prunes of a volume."""
    open_of: dict[Key, dict[str, None]] = field(default_factory=dict)
    """The ids of an environment's requests that are not done with."""
    contradicted: set[Key] = field(default_factory=set)
    """The releases whose body is not the one that a deployment froze."""
    activations: dict[Key, Version] = field(default_factory=dict)
    """The newest activation of an environment."""
    follows_demand: set[Key] = field(default_factory=set)
    """The environments whose number of replicas follows what the proxies report."""
    # telemetry
    heard: dict[str, datetime] = field(default_factory=dict)
    listening: dict[str, datetime] = field(default_factory=dict)
    """The nodes to be looked at once they have been silent for too long, and since when they are; the longest first."""
    samples: dict[str, NodeHeard] = field(default_factory=dict)
    proxies: dict[str, ProxyHeard] = field(default_factory=dict)
    busy_at: dict[Key, datetime] = field(default_factory=dict)
    """When a proxy last reported requests in an environment."""
    attended_at: datetime | None = None
    losing: int | None = None
    """How many nodes were being lost when a decision was made that is made again; None = they are counted."""
    # what has to be looked at, and when
    waiting: Waiting = field(init=False)
    dirty: SortedDict[Target, int] = field(default_factory=SortedDict)
    due: SortedSet[tuple[datetime, Target]] = field(default_factory=SortedSet)
    due_at: dict[Target, datetime] = field(default_factory=dict)
    marks: int = 0
    capacity_marks: int = 0

    def __post_init__(self) -> None:
        self.waiting = Waiting(self.cluster)

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
        return node in self.gone_nodes

    def unavailable(self, node: str) -> str:
        """Why a node takes no new replicas; empty where it does."""
        status = self.get(subjects.NODE_STATUS, (node,), NodeStatus)
        control = self.get(subjects.NODE_CONTROL, (node,), NodeControl) or NodeControl()
        if status is None:
            return "joining"
        if status.state != "alive":
            return status.state
        if control.drain:
            return "draining"
        return "" if control.schedulable else "cordoned"

    def startable(self, environment: Key, version: str) -> Release | None:
        """The release, where replicas may be started from it; None where it cannot be read or was changed."""
        key = (*environment, version)
        return None if key in self.contradicted else self.get(subjects.RELEASE, key, Release)

    def template_of(self, environment: Key, version: str, image: str, platforms: tuple[str, ...]) -> Template | None:
        """The template of a release with its resolved image and platforms; None where nothing may be started."""
        release = self.startable(environment, version)
        return template(environment, version, release, image, platforms) if release is not None else None

    def mark(self, target: Target) -> None:
        """It has to be looked at."""
        self.marks += 1
        if target in self.dirty:
            _mark_again(self.dirty, target, self.marks)  # its place in the order stays
        else:
            self.dirty[target] = self.marks
