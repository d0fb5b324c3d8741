"""Which nodes take the replicas of a workload: pure, deterministic, and by reservations only, never by live usage.

A node passes the filters in this order: not excluded, available, platform, labels, pin, `distinct_nodes`, memory, CPU.
Of those that pass, the smallest key wins: `(replicas of the workload on the node, in its region, -free memory, name)`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

UNLIMITED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be placed. `cpu_millis` and `memory_mb` are effective (above 0), `constraints` sorted by label."""

    workload: str
    cpu_millis: int
    memory_mb: int
    constraints: tuple[tuple[str, str], ...] = ()
    platforms: tuple[str, ...] = ()
    distinct_nodes: bool = False
    pin: str | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The nodes in the order in which they were picked, how many replicas found none, and why (JSON-able)."""

    nodes: tuple[str, ...]
    shortfall: int
    reasons: Mapping[str, Any]


@dataclass(slots=True)
class _Node:
    labels: Mapping[str, str]
    platform: str
    cpu_millis: int
    memory_mb: int
    unavailable: str


class Cluster:
    """Nodes, and what is reserved on them. Independent of the order in which it is told."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._used: dict[str, list[int]] = {}
        self._replicas: dict[str, dict[str, int]] = {}

    def set_node(
        self,
        name: str,
        labels: Mapping[str, str],
        platform: str,
        cpu_millis: int,
        memory_mb: int,
        unavailable: str = "",
    ) -> None:
        """Add or change a node. `unavailable`: "" = may take replicas, else why not ("down", "cordoned", ...)."""
        self._nodes[name] = _Node(dict(labels), platform, cpu_millis, memory_mb, unavailable)

    def remove_node(self, name: str) -> None:
        """Forget a node; what is reserved on it stays reserved, should it come back."""
        self._nodes.pop(name, None)

    def reserve(self, node: str, workload: str, cpu_millis: int, memory_mb: int) -> None:
        """One more replica of the workload on the node, which may be unknown yet."""
        self._add(node, workload, cpu_millis, memory_mb, 1)

    def release(self, node: str, workload: str, cpu_millis: int, memory_mb: int) -> None:
        """The opposite of `reserve`, with the same amounts."""
        self._add(node, workload, -cpu_millis, -memory_mb, -1)

    def _add(self, node: str, workload: str, cpu_millis: int, memory_mb: int, count: int) -> None:
        used = self._used.setdefault(node, [0, 0])
        used[0] += cpu_millis
        used[1] += memory_mb
        replicas = self._replicas.setdefault(workload, {})
        replicas[node] = replicas.get(node, 0) + count
        if not replicas[node]:
            del replicas[node]

    def replicas(self, workload: str) -> Mapping[str, int]:
        """How many replicas of the workload are reserved, per node."""
        return dict(self._replicas.get(workload, {}))

    def fits(self, node: str, request: Request) -> bool:
        """Whether the node passes all filters now."""
        return bool(place(self, request, 1, frozenset(self._nodes) - {node}).nodes)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is reserved and released inside is undone at the end."""
        before = (
            {name: list(used) for name, used in self._used.items()},
            {name: dict(counts) for name, counts in self._replicas.items()},
        )
        try:
            yield
        finally:
            self._used, self._replicas = before


def place(cluster: Cluster, request: Request, count: int, exclude: frozenset[str] = frozenset()) -> Placed:
    """Choose nodes for `count` replicas. Nothing is reserved: the caller reserves what it takes."""
    picks: list[str] = []
    rejected: dict[str, int] = {}
    with cluster.trial():
        for _ in range(count):
            best: tuple[Any, ...] | None = None
            rejected = {}
            own = cluster._replicas.get(request.workload, {})
            regions: dict[str, int] = {}
            for name, n in own.items():
                if name in cluster._nodes:
                    region = cluster._nodes[name].labels.get("region", "")
                    regions[region] = regions.get(region, 0) + n
            for name, node in cluster._nodes.items():
                used = cluster._used.get(name, [0, 0])
                reason = ""
                if name in exclude:
                    reason = "excluded"
                elif node.unavailable:
                    reason = node.unavailable
                elif request.platforms and node.platform not in request.platforms:
                    reason = "platform"
                elif any(node.labels.get(key, "") != value for key, value in request.constraints):
                    reason = "labels"
                elif request.pin and request.pin != name:
                    reason = "pin"
                elif request.distinct_nodes and own.get(name):
                    reason = "distinct_nodes"
                elif node.memory_mb and used[1] + request.memory_mb > node.memory_mb:
                    reason = "memory"
                elif node.cpu_millis and used[0] + request.cpu_millis > node.cpu_millis:
                    reason = "cpu"
                if reason:
                    rejected[reason] = rejected.get(reason, 0) + 1
                    continue
                free = max(0, node.memory_mb - used[1]) if node.memory_mb else UNLIMITED
                key = (own.get(name, 0), regions.get(node.labels.get("region", ""), 0), -free, name)
                if best is None or key < best:
                    best = key
            if best is None:
                break
            picks.append(best[3])
            cluster.reserve(best[3], request.workload, request.cpu_millis, request.memory_mb)
    considered = len(cluster._nodes)
    reasons = {"considered": considered, "feasible": considered - sum(rejected.values()), "rejected": rejected}
    return Placed(tuple(picks), max(0, count) - len(picks), reasons)
