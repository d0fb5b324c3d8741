"""Which nodes take the replicas of a workload: pure, deterministic, and by reservations only, never by live usage.

Of the nodes that pass the filters (`fitting`), the smallest key wins: `(replicas of the workload on the node, in its
region, -free memory, name)`. So replicas go to nodes without one as long as there are any, and those stand in order in
the index; only then, level by level, to the nodes that hold the fewest. Choosing costs what the workload's own replicas
and the few nodes looked at cost, not what the cluster does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any

from services.scheduler.cluster import Cluster
from services.scheduler.fitting import UNLIMITED, Request, ruled_out, too_full
from services.scheduler.node_index import Entry, Group, Selection, orders_of
from services.scheduler.rejections import Pick, Search, explain

__all__ = ["Cluster", "Placed", "Request", "place"]

Crowded = tuple[int, str, str, int]
"""A node that holds replicas: `(-free memory, name, region, free CPU)`, the picks of this call taken off."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The nodes in the order in which they were picked, how many replicas found none, and why (see `rejections`)."""

    nodes: tuple[str, ...]
    shortfall: int
    reasons: Mapping[str, Any]


def place(cluster: Cluster, request: Request, count: int, exclude: frozenset[str] = frozenset()) -> Placed:
    """Choose nodes for `count` replicas. Nothing is reserved: the caller reserves what it takes."""
    selection = cluster.index.select(request)
    own = cluster.workloads.get(request.workload, {})
    search = Search(request, exclude, selection, _orders(cluster, request, selection), own, max(0, count))
    regions = _replicas_by_region(cluster, own)
    levels: dict[int, list[Crowded]] = {}
    _spread(search, regions, levels)
    if search.missing and not request.distinct_nodes:
        _add_own(cluster, search, levels)
        _crowd(search, regions, levels)
    return Placed(tuple([pick.node for pick in search.picks]), search.missing, explain(cluster, search))


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


def _spread(search: Search, regions: dict[str, int], levels: dict[int, list[Crowded]]) -> None:
    """Pick nodes that hold no replica of the workload.

    The heap has the best node of each order. A pick makes its region's other entries look better than they are; they
    are put right when they come to the top.
    """
    request, own, exclude = search.request, search.own, search.exclude
    heap: list[tuple[int, Entry, Group]] = []
    for order in search.orders:
        entry = order.first(request, own, exclude)
        if entry is not None:
            heap.append((regions.get(order.region, 0), entry, order))
    heapify(heap)
    while heap and search.missing:
        in_region, entry, order = heap[0]
        now = regions.get(order.region, 0)
        if in_region != now:
            heapreplace(heap, (now, entry, order))
            continue
        search.take(Pick(entry[1], 0, now, order.region, -entry[0]))
        regions[order.region] = now + 1
        if not search.missing:
            return
        _keep_if_it_fits(levels, 1, (entry[0], entry[1], order.region, entry[2].free_cpu), request)
        following = order.next(entry, request, own, exclude)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (now + 1, following, order))


def _keep_if_it_fits(levels: dict[int, list[Crowded]], level: int, node: Crowded, request: Request) -> None:
    """The node has been picked: it stands among those of the next level, where it can take another."""
    negative, name, region, cpu = node
    memory_left = _less(-negative, request.memory_mb)
    cpu_left = _less(cpu, request.cpu_millis)
    if not too_full(cpu_left, memory_left, request):
        levels.setdefault(level, []).append((-memory_left, name, region, cpu_left))


def _less(free: int, need: int) -> int:
    return free if free == UNLIMITED else free - need


def _add_own(cluster: Cluster, search: Search, levels: dict[int, list[Crowded]]) -> None:
    """The nodes that held replicas before this call, at the level of how many."""
    request = search.request
    for name, replicas in search.own.items():
        node = cluster.nodes[name]
        if not node.known or name in search.exclude or ruled_out(node, request):
            continue
        memory_left, cpu_left = node.memory_left(), node.cpu_left()
        if not too_full(cpu_left, memory_left, request):
            levels.setdefault(replicas, []).append((-memory_left, name, node.region, cpu_left))


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
            search.take(Pick(name, level, in_region, region, -negative))
            regions[region] = in_region + 1
            _keep_if_it_fits(levels, level + 1, node, search.request)
            if others:
                heapreplace(heap, (in_region + 1, others.pop(), others))
            else:
                heappop(heap)
