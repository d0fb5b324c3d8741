"""What the scheduler knows: the records it reads, the indexes derived from them, and the telemetry beside them.

Indexes keep the cost of a decision at what changed: `indexes.index` maintains them and marks the targets that have to be
looked at. They are derived from the records alone, so the order between different subjects does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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


class State:
    """Private to the scheduler; `decide` reads it and changes nothing."""

    def __init__(self) -> None:
        self.sequence = 0
        self.tables: dict[Kind, dict[Key, Version]] = {kind: {} for kind in READS}
        # indexes
        self.cluster = Cluster()
        self.replicas_of: dict[Target, set[Key]] = {}
        self.replicas_on: dict[str, set[Key]] = {}
        self.gone_nodes: set[str] = set()
        """The nodes that are down or decommissioned."""
        self.draining_nodes: set[str] = set()
        """The nodes that are to have no replicas."""
        self.draining: dict[Target, set[Key]] = {}
        self.history_of: dict[Key, set[tuple[Kind, Key]]] = {}
        """The releases, requests and deployments of an environment."""
        self.awaits_build: dict[Key, set[Key]] = {}
        """The environments with a release that a build makes: `(project, app, build)`."""
        self.built_of: dict[Key, set[Key]] = {}
        """The environments of an app with a release that a build makes: `(project, app)`."""
        self.volumes_of: dict[Key, set[Key]] = {}
        """The volumes of an environment, wanted or pinned."""
        self.pinned_on: dict[str, set[Key]] = {}
        """The volumes whose status names a node."""
        self.orders_of: dict[Key, set[Key]] = {}
        self.prunes_of: dict[Key, set[Key]] = {}
        """The snapshot orders and prunes of a volume."""
        self.open_of: dict[Key, set[str]] = {}
        """The ids of an environment's requests that are not done with."""
        self.contradicted: set[Key] = set()
        """The releases whose body is not the one that a deployment froze."""
        self.activations: dict[Key, Version] = {}
        """The newest activation of an environment."""
        self.follows_demand: set[Key] = set()
        """The environments whose number of replicas follows what the proxies report."""
        self.reserved: dict[Key, tuple[str, int, int]] = {}
        # telemetry
        self.heard: dict[str, datetime] = {}
        self.samples: dict[str, NodeHeard] = {}
        self.proxies: dict[str, ProxyHeard] = {}
        self.busy_at: dict[Key, datetime] = {}
        """When a proxy last reported requests in an environment."""
        self.attended_at: datetime | None = None
        self.losing: int | None = None
        """How many nodes were being lost when a decision was made that is made again; None = they are counted."""
        # what has to be looked at, and when
        self.templates: dict[Key, tuple[int, str, tuple[str, ...], Template]] = {}
        """A memo: the template of a release, with what it was made of; see `template_of`."""
        self.waiting = Waiting(self.cluster)
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

    def template_of(self, environment: Key, version: str, image: str, platforms: tuple[str, ...]) -> Template | None:
        """The template of a release with its resolved image and platforms; None where there is none to start from."""
        key = (*environment, version)
        release = self.tables[subjects.RELEASE].get(key)
        if release is None or not isinstance(release.record, Release) or key in self.contradicted:
            return None
        made_of = (release.sequence, image, platforms)
        known = self.templates.get(key)
        if known is None or known[:3] != made_of:
            known = (*made_of, template(environment, version, release.record, image, platforms))
            self.templates[key] = known
        return known[3]

    def mark(self, target: Target) -> None:
        """It has to be looked at."""
        self.marks += 1
        self.dirty[target] = self.marks
