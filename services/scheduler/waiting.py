"""Workloads that could not be placed, found again by what could cure them.

Those that ask for the same kind of node stand together, the smallest memory first. A change on one node is then
answered by one look at each kind, and at those of it that have room on the node as it is now. Nothing is remembered of
what happened before: whoever waits and would fit is named, so no wake-up is lost, however late the workload was added.
"""

from collections.abc import Iterator

from sortedcontainers import SortedDict

from services.scheduler.fitting import Request
from services.scheduler.groups import ruled_out
from services.scheduler.placement import Cluster

NodeKind = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]
"""Constraints and platforms: what is asked of a node beside room."""


class Waiting:
    """Which workloads wait, and for what. One request per workload."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._requests: dict[str, Request] = {}
        # By pin (None = any node), then by kind; in there by memory and workload.
        self._kinds: dict[str | None, dict[NodeKind, SortedDict]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, workload: str) -> bool:
        return workload in self._requests

    def add(self, request: Request) -> None:
        """The workload waits for a node that fits this request; an earlier request of the same workload is replaced."""
        if self._requests.get(request.workload) == request:
            return
        self.discard(request.workload)
        self._requests[request.workload] = request
        kinds = self._kinds.setdefault(request.pin, {})
        kind = (request.constraints, request.platforms)
        kinds.setdefault(kind, SortedDict())[request.memory_mb, request.workload] = request

    def discard(self, workload: str) -> None:
        """The workload waits no more."""
        request = self._requests.pop(workload, None)
        if request is None:
            return
        kinds = self._kinds[request.pin]
        kind = (request.constraints, request.platforms)
        del kinds[kind][request.memory_mb, workload]
        if not kinds[kind]:
            del kinds[kind]
        if not kinds:
            del self._kinds[request.pin]

    def cured_by(self, node: str) -> tuple[str, ...]:
        """The waiting workloads that the node, as it is now, could take, each taken by itself; in order of name."""
        return tuple(sorted([*self._cured(node, None), *self._cured(node, node)]))

    def _cured(self, name: str, pin: str | None) -> Iterator[str]:
        node = self._cluster.nodes.get(name)
        kinds = self._kinds.get(pin)
        if kinds is None or node is None or not node.known or node.unavailable:
            return
        bound = (node.memory_left() + 1,)
        for requests in kinds.values():
            smallest = requests.peekitem(0)[1]
            if ruled_out(node, smallest):
                continue
            for size in requests.irange(maximum=bound):
                if self._cluster.fits(name, requests[size]):
                    yield requests[size].workload
