"""The world as an observer of the whole log sees it: every record as it stands, and as it was at a sequence."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from pydantic import BaseModel

from shared.model.assignment import Assignment, Instance
from shared.model.deployment import ActiveRelease, Scale
from shared.model.environment import Environment, ServiceSpec
from shared.model.node import Node, NodeStatus
from shared.model.pool import Pool
from shared.model.release import Release
from shared.service import Version
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    DECISION,
    ENVIRONMENT,
    INSTANCE,
    NODE,
    NODE_STATUS,
    NOTICE,
    POOL,
    RELEASE,
    SCALE,
    Key,
    Kind,
)

M = TypeVar("M", bound=BaseModel)
NEWEST = 1 << 62
SIGNATURE_DIGITS = 16


class View:
    """`keys` are those of each kind that have a record now."""

    def __init__(self) -> None:
        self._history: dict[tuple[Kind, Key], list[Version]] = defaultdict(list)
        self.keys: dict[Kind, dict[Key, None]] = defaultdict(dict)
        self._on_node: dict[str, dict[Key, None]] = defaultdict(dict)
        self._of_workload: dict[str, dict[Key, None]] = defaultdict(dict)

    def apply(self, versions: Iterable[Version]) -> list[Version]:
        """Take in what was stored; explanations and notices tell nothing about the world and are left out."""
        taken = [version for version in versions if version.kind not in (DECISION, NOTICE)]
        for version in taken:
            self._history[version.kind, version.key].append(version)
            if version.record is None:
                self.keys[version.kind].pop(version.key, None)
            else:
                self.keys[version.kind][version.key] = None
            if version.kind is ASSIGNMENT:
                self._list(version)
        return taken

    def _list(self, version: Version) -> None:
        if isinstance(version.record, Assignment):
            self._on_node[version.key[0]][version.key] = None
            self._of_workload[version.record.workload.key][version.key] = None
            return
        self._on_node[version.key[0]].pop(version.key, None)
        before = self.get(ASSIGNMENT, version.key, Assignment, version.sequence - 1)
        if before is not None:
            self._of_workload[before.workload.key].pop(version.key, None)

    def version(self, kind: Kind, key: Key, at: int = NEWEST) -> Version | None:
        """The newest version up to a sequence."""
        history = self._history.get((kind, key), ())
        if history and history[-1].sequence <= at:
            return history[-1]
        position = bisect_right(history, at, key=lambda version: version.sequence)
        return history[position - 1] if position else None

    def get(self, kind: Kind, key: Key, model: type[M], at: int = NEWEST) -> M | None:
        version = self.version(kind, key, at)
        return version.record if version is not None and isinstance(version.record, model) else None

    def all(self, kind: Kind, model: type[M]) -> dict[Key, M]:
        return {key: record for key in self.keys[kind] if (record := self.get(kind, key, model)) is not None}

    # -- what several invariants ask ----------------------------------------------------------------------------------

    def gone(self, key: Key, at: int = NEWEST) -> bool:
        """Whether the replica of an assignment has ended."""
        instance = self.get(INSTANCE, key, Instance, at)
        return instance is not None and instance.state in ("failed", "stopped")

    def lost(self, node: str, at: int = NEWEST) -> bool:
        """Whether a node is down or decommissioned. Its status is the scheduler's own record: it knows the newest."""
        status = self.get(NODE_STATUS, (node,), NodeStatus)
        return (status is not None and status.state == "down") or self.get(NODE, (node,), Node, at) is None

    def absent(self, key: Key) -> bool:
        """Whether the replica of an assignment has ended, or its node is lost."""
        return self.gone(key) or self.lost(key[0])

    def healthy(self, key: Key, at: int = NEWEST) -> bool:
        instance = self.get(INSTANCE, key, Instance, at)
        return instance is not None and instance.state == "healthy" and not self.lost(key[0], at)

    def desired(self, workload: Key, at: int = NEWEST) -> int:
        """How many replicas a workload should have. An environment without a record or a release should have none."""
        if len(workload) == len(POOL.tokens):
            pool = self.get(POOL, workload, Pool, at)
            return pool.desired if pool is not None else 0
        record = self.get(ENVIRONMENT, workload, Environment, at)
        active = self.get(ACTIVE, workload, ActiveRelease, at)
        if record is None or active is None or not active.version:
            return 0
        release = self.get(RELEASE, (*workload, active.version), Release, at)
        service = release.service if release is not None else record.service
        return _width(record, service, self.get(SCALE, workload, Scale, at))

    def serving(self, workload: Key, at: int = NEWEST) -> str:
        """The set of replicas that serves: the deployment of an environment, the signature of a pool; or empty."""
        if len(workload) == len(POOL.tokens):
            pool = self.get(POOL, workload, Pool, at)
            return pool.signature[:SIGNATURE_DIGITS] if pool is not None else ""
        active = self.get(ACTIVE, workload, ActiveRelease, at)
        return active.deployment if active is not None else ""

    def replicas(self, workload: Key) -> dict[Key, Assignment]:
        return self._assignments(self._of_workload.get("/".join(workload), {}))

    def on_node(self, node: str) -> dict[Key, Assignment]:
        return self._assignments(self._on_node.get(node, {}))

    def _assignments(self, keys: Iterable[Key]) -> dict[Key, Assignment]:
        return {key: record for key in keys if (record := self.get(ASSIGNMENT, key, Assignment)) is not None}


def _width(record: Environment, service: ServiceSpec, scale: Scale | None) -> int:
    """`min` without a policy that scales; with one what it has decided, within its bounds."""
    least, most = record.replicas.min, record.replicas.most
    targets = service.autoscale is not None and most > max(1, least)
    scales = service.scale_to_zero or service.max_concurrency or targets
    wanted = scale.effective_replicas if scales and scale is not None else least
    if service.scale_to_zero:
        least = 0
    elif scales:
        least = max(1, least)
    wanted = max(least, min(wanted, most))
    return min(1, wanted) if service.stateful else wanted
