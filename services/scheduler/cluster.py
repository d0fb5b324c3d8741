"""What placement knows of the cluster: nodes, and what is reserved on them.

The scheduler's fold keeps it. Reservations of every replica count, draining and stopping ones too, until they are
released; those on a node that is not known (yet, or any more) wait for it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from services.scheduler.fitting import Request, normal_platform, too_full
from services.scheduler.groups import Node, ruled_out
from services.scheduler.node_index import DEFAULT_SIZES, Index, Sizes


class Cluster:
    """Nodes, and what is reserved on them. Independent of the order in which it is told."""

    def __init__(self, sizes: Sizes = DEFAULT_SIZES) -> None:
        # Read by `place`; changed only here.
        self.nodes: dict[str, Node] = {}
        self.workloads: dict[str, dict[str, int]] = {}
        self.index = Index(sizes)
        self._undo: list[tuple[str, str, int, int, int]] | None = None

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
        node = self.nodes.setdefault(name, Node(name))
        platform = normal_platform(platform)
        if node.known:
            now = (node.labels, node.platform, node.cpu_millis, node.memory_mb, node.unavailable)
            if now == (labels, platform, cpu_millis, memory_mb, unavailable):
                return
            self.index.remove(node)
        node.known = True
        node.labels, node.region = dict(labels), labels.get("region", "")
        node.platform, node.unavailable = platform, unavailable
        node.cpu_millis, node.memory_mb = cpu_millis, memory_mb
        self.index.insert(node)

    def remove_node(self, name: str) -> None:
        """Forget a node; what is reserved on it stays reserved, should it come back."""
        node = self.nodes.get(name)
        if node is None or not node.known:
            return
        self.index.remove(node)
        node.known = False
        if not node.replicas:
            del self.nodes[name]

    def reserve(self, node: str, workload: str, cpu_millis: int, memory_mb: int) -> None:
        """One more replica of the workload on the node, which may be unknown yet."""
        self._count(node, workload, cpu_millis, memory_mb, 1)

    def release(self, node: str, workload: str, cpu_millis: int, memory_mb: int) -> None:
        """The opposite of `reserve`, with the same amounts."""
        assert self.workloads.get(workload, {}).get(node), f"{workload} has nothing reserved on {node}"
        self._count(node, workload, -cpu_millis, -memory_mb, -1)

    def _count(self, name: str, workload: str, cpu_millis: int, memory_mb: int, count: int) -> None:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name)
        node.cpu_used += cpu_millis
        node.memory_used += memory_mb
        node.replicas += count
        if node.group is not None:
            if not node.dirty:
                self.index.touch(node)
        elif not node.replicas and not node.known:
            del self.nodes[name]
        own = self.workloads.get(workload)
        if own is None:
            own = self.workloads[workload] = {}
        replicas = own.get(name, 0) + count
        if replicas:
            own[name] = replicas
        else:
            del own[name]
            if not own:
                del self.workloads[workload]
        if self._undo is not None:
            self._undo.append((name, workload, -cpu_millis, -memory_mb, -count))

    def replicas(self, workload: str) -> Mapping[str, int]:
        """How many replicas of the workload are reserved, per node."""
        return dict(self.workloads.get(workload, {}))

    def fits(self, node: str, request: Request) -> bool:
        """Whether the node passes all filters now."""
        found = self.nodes.get(node)
        if found is None or not found.known or ruled_out(found, request):
            return False
        if request.distinct_nodes and self.workloads.get(request.workload, {}).get(node):
            return False
        return not too_full(found.cpu_left(), found.memory_left(), request)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is reserved and released inside is undone at the end. Trials nest."""
        outer, self._undo = self._undo, []
        try:
            yield
        finally:
            undo, self._undo = self._undo, None
            for change in reversed(undo):
                self._count(*change)
            self._undo = outer
