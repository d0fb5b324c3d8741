"""Which nodes take the replicas of a workload: pure, deterministic, and by reservations only, never by live usage.

Of the nodes that pass the filters (`fitting`), the smallest key wins: `(replicas of the workload on the node, in its
region, -free memory, name)`. So replicas go to nodes without one as long as there are any, and those stand in order in
the index; only then, level by level, to the nodes that hold the fewest. Choosing costs what the workload's own replicas
and the few nodes looked at cost, not what the cluster does.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from services.scheduler.cluster import Cluster
from services.scheduler.fitting import UNLIMITED, Request, too_full
from services.scheduler.groups import Entry, Group, ruled_out
from services.scheduler.node_index import Selection, orders_of
from services.scheduler.rejections import Search, explain

__all__ = ["Cluster", "Placed", "Request", "place"]

Crowded = tuple[int, str, str, int]
"""A node that holds replicas: `(-free memory, name, region, free CPU)`, the picks of this call taken off."""

NOTHING: Mapping[str, int] = {}


class Placed(NamedTuple):
    """The nodes in the order in which they were picked, how many replicas found none, and why (see `rejections`)."""

    nodes: tuple[str, ...]
    shortfall: int
    reasons: Mapping[str, Any]


def place(cluster: Cluster, request: Request, count: int, exclude: frozenset[str] = frozenset()) -> Placed:
    """Choose nodes for `count` replicas. Nothing is reserved: the caller reserves what it takes."""
    selection = cluster.index.select(request)
    own = cluster.workloads.get(request.workload, NOTHING)
    search = Search(request, exclude, selection, _orders(cluster, request, selection), own, max(0, count))
    regions = _replicas_by_region(cluster, own)
    _spread(search, regions)
    if search.missing and not request.distinct_nodes:
        _crowd(search, regions, _levels(cluster, search))
    return Placed(tuple([pick[0] for pick in search.picks]), search.missing, explain(cluster, search))


def _orders(cluster: Cluster, request: Request, selection: Selection) -> tuple[Group, ...]:
    """The nodes that pass all filters but those of capacity, in order."""
    if request.pin is None:
        return selection.orders()
    node = cluster.nodes.get(request.pin)
    if node is None or not node.known or ruled_out(node, request):
        return ()
    return orders_of((node,))


def _replicas_by_region(cluster: Cluster, own: Mapping[str, int]) -> dict[str, int]:
    regions: dict[str, int] = {}
    for name, replicas in own.items():
        node = cluster.nodes[name]
        if node.known:
            regions[node.region] = regions.get(node.region, 0) + replicas
    return regions


def _spread(search: Search, regions: dict[str, int]) -> None:
    """Pick nodes that hold no replica of the workload.

    The heap has the best node of each order, with its region's count. What it says may be out of date, but then it
    says too little: a pick raises the count of its region, and the next node of its order stands behind it. An entry is
    put right when it comes to the top.
    """
    request, own, exclude = search.request, search.own, search.exclude
    heap: list[tuple[int, Entry, Group, bool]] = []
    for order in search.orders:
        entry = order.first(request, own, exclude)
        if entry is not None:
            heap.append((regions.get(order.region, 0), entry, order, False))
    heapify(heap)
    missing = search.missing
    while heap and missing:
        in_region, entry, order, taken = heap[0]
        region = order.region
        now = regions.get(region, 0)
        if taken:
            following = order.next(entry, request, own, exclude)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (now, following, order, False))
        elif in_region != now:
            heapreplace(heap, (now, entry, order, False))
        else:
            search.picks.append((entry[1], 0, now, region, -entry[0]))
            missing -= 1
            regions[region] = now = now + 1
            heapreplace(heap, (now, entry, order, True))
    search.missing = missing


def _levels(cluster: Cluster, search: Search) -> dict[int, list[Crowded]]:
    """The nodes that hold replicas and can take another, by how many they hold, those just picked included."""
    request = search.request
    levels: dict[int, list[Crowded]] = {}
    for name, replicas in search.own.items():
        node = cluster.nodes[name]
        if node.known and name not in search.exclude and not ruled_out(node, request):
            _keep(levels, replicas, (-node.memory_left(), name, node.region, node.cpu_left()), request)
    for name, _, _, region, memory_left in search.picks:
        _keep(levels, 1, _less((-memory_left, name, region, cluster.nodes[name].cpu_left()), request), request)
    return levels


def _keep(levels: dict[int, list[Crowded]], level: int, node: Crowded, request: Request) -> None:
    if not too_full(node[3], -node[0], request):
        levels.setdefault(level, []).append(node)


def _less(node: Crowded, request: Request) -> Crowded:
    """The node with one replica more."""
    negative, name, region, cpu_left = node
    return (
        negative if negative == -UNLIMITED else negative + request.memory_mb,
        name,
        region,
        cpu_left if cpu_left == UNLIMITED else cpu_left - request.cpu_millis,
    )


def _crowd(search: Search, regions: dict[str, int], levels: dict[int, list[Crowded]]) -> None:
    """Pick nodes that hold replicas, the fewest first. A pick moves its node up, so a level left behind stays empty."""
    while levels and search.missing:
        level = min(levels)
        waiting: dict[str, list[Crowded]] = {}
        for node in sorted(levels.pop(level), reverse=True):
            waiting.setdefault(node[2], []).append(node)
        heap = [(regions.get(region, 0), nodes.pop(), nodes) for region, nodes in waiting.items()]
        heapify(heap)
        while heap and search.missing:
            in_region, node, others = heap[0]
            negative, name, region, _ = node
            search.picks.append((name, level, in_region, region, -negative))
            search.missing -= 1
            regions[region] = in_region + 1
            _keep(levels, level + 1, _less(node, search.request), search.request)
            if others:
                heapreplace(heap, (in_region + 1, others.pop(), others))
            else:
                heappop(heap)
