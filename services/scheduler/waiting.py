"""Workloads that could not be placed, found again by what could cure them."""

from services.scheduler.placement import Cluster, Request


class Waiting:
    """Which workloads wait, for what. `cured_by(node)` names, in order, those that would fit on the node now."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._requests: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, workload: str) -> bool:
        return workload in self._requests

    def add(self, request: Request) -> None:
        """The workload waits for a node that this request fits; replaces an earlier request of the same workload."""
        self._requests[request.workload] = request

    def discard(self, workload: str) -> None:
        """The workload waits no more."""
        self._requests.pop(workload, None)

    def cured_by(self, node: str) -> tuple[str, ...]:
        """The waiting workloads that the node could take as it is now, each by itself; sorted."""
        fits = self._cluster.fits
        return tuple(sorted(name for name, request in self._requests.items() if fits(node, request)))
