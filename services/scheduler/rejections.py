"""Why a placement came out as it did: an account in which every node considered is counted once.

`sum(rejected.values()) + feasible == considered`. After a shortfall every node is accounted for, by the first filter
that it fails, as it stands with the picks that were made. After success the account has the nodes that platform, labels
and the like ruled out, and those picked. Counts come from groups; no walk over the nodes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any

from services.scheduler.cluster import Cluster
from services.scheduler.fitting import UNLIMITED, Request, matches, supports, too_full
from services.scheduler.groups import Entry, Group, Node, ruled_out
from services.scheduler.node_index import Selection

EXAMPLES = 3
"""How many nodes are named for each reason."""

PICKS = 3
"""How many picks are shown with their keys."""


Pick = tuple[str, int, int, str, int]
"""A node, and the key that won: how many replicas it and its region held before, the region, its free memory before."""


@dataclass(slots=True)
class Search:
    """One call of `place`: what is asked, which nodes pass all filters but capacity (`orders`), what was picked."""

    request: Request
    exclude: frozenset[str]
    selection: Selection
    orders: tuple[Group, ...]
    own: Mapping[str, int]
    missing: int
    picks: list[Pick] = field(default_factory=list)


def explain(cluster: Cluster, search: Search) -> dict[str, Any]:
    """The account, as plain values for JSON."""
    rejected = _ruled_out(cluster, search)
    reasons: dict[str, Any] = {"nodes": cluster.index.size}
    if search.missing:
        full = _Full(cluster, search)
        rejected.update(full.counts())
        examples = {**_examples(cluster, search), **full.examples()}
        reasons["why"] = _sentence(search, rejected, cluster.index.size)
        reasons["examples"] = {reason: examples[reason] for reason in rejected if examples.get(reason)}
    feasible = 0 if search.missing else len({pick[0] for pick in search.picks})
    reasons["considered"] = sum(rejected.values()) + feasible
    reasons["feasible"] = feasible
    reasons["rejected"] = rejected
    if search.missing and search.request.pin is not None:
        reasons["pin"] = _pin(cluster, search)
    if search.picks:
        reasons["picks"] = [_shown(pick) for pick in search.picks[:PICKS]]
    return reasons


def _shown(pick: Pick) -> dict[str, Any]:
    node, on_node, in_region, region, free = pick
    return {
        "node": node,
        "replicas_on_node": on_node,
        "region": region,
        "replicas_in_region": in_region,
        "free_memory_mb": _limited(free),
    }


def _limited(free: int) -> int | None:
    """None = unlimited."""
    return None if free == UNLIMITED else free


def _ruled_out(cluster: Cluster, search: Search) -> dict[str, int]:
    """Counts of the filters before capacity, in their order, those of 0 left out."""
    request, selection = search.request, search.selection
    if not search.exclude and request.pin is None:
        return dict(selection.rejected)
    counts = {"excluded": 0, **selection.rejected}
    if request.pin is not None:
        counts["pin"] = selection.size - sum(order.size for order in search.orders)
    for node in _known(cluster, search.exclude):
        counts["excluded"] += 1
        reason = ruled_out(node, request)
        if reason:
            counts[reason] -= 1
    return {reason: count for reason, count in counts.items() if count}


def _known(cluster: Cluster, names: Iterable[str]) -> list[Node]:
    return [node for node in map(cluster.nodes.get, names) if node is not None and node.known]


class _Full:
    """The nodes that only lack capacity, or hold a replica already, after a shortfall.

    Nothing fits any more, so of the nodes that this workload does not touch, those with enough memory lack CPU: the
    index can count both. The others, few, are looked at one by one.
    """

    def __init__(self, cluster: Cluster, search: Search) -> None:
        self._search = search
        self._request = search.request
        self._taken = Counter(pick[0] for pick in search.picks)
        self._touched: dict[str, list[tuple[int, str, int]]] = {"distinct_nodes": [], "memory": [], "cpu": []}
        touched = [cluster.nodes[name] for name in sorted({*search.own, *self._taken} - search.exclude)]
        self._apart = [node for node in touched if node.known and not ruled_out(node, search.request)]
        for node in self._apart:
            self._look_at(node)
        self._apart += [node for node in _known(cluster, search.exclude) if not ruled_out(node, search.request)]

    def _look_at(self, node: Node) -> None:
        taken = self._taken[node.name]
        memory, cpu = node.memory_left(), node.cpu_left()
        memory -= taken * self._request.memory_mb if memory != UNLIMITED else 0
        cpu -= taken * self._request.cpu_millis if cpu != UNLIMITED else 0
        reason = "distinct_nodes" if self._request.distinct_nodes else too_full(cpu, memory, self._request)
        self._touched[reason].append((-memory, node.name, cpu))

    def counts(self) -> dict[str, int]:
        orders, need = self._search.orders, self._request.memory_mb
        nodes = sum(order.size for order in orders) - len(self._apart)
        with_memory = sum(order.with_memory(need) for order in orders)
        with_memory -= sum(node.memory_left() >= need for node in self._apart)
        counts = {reason: len(found) for reason, found in self._touched.items()}
        counts["memory"] += nodes - with_memory
        counts["cpu"] += with_memory
        return {reason: count for reason, count in counts.items() if count}

    def examples(self) -> dict[str, list[dict[str, Any]]]:
        """Those nearest to fitting: the most free memory first."""
        need = self._request.memory_mb
        apart = {node.name for node in self._apart}
        short: list[tuple[int, str, int]] = []
        busy: list[tuple[int, str, int]] = []
        for order in self._search.orders:
            rank = order.with_memory(need)
            short += _first(order.from_rank(rank), apart)
            busy += _first(islice(order, rank), apart)
        return {
            "distinct_nodes": [{"node": found[1]} for found in sorted(self._touched["distinct_nodes"])[:EXAMPLES]],
            "memory": [_capacity(found) for found in sorted(short + self._touched["memory"])[:EXAMPLES]],
            "cpu": [_capacity(found) for found in sorted(busy + self._touched["cpu"])[:EXAMPLES]],
        }


def _first(entries: Iterable[Entry], apart: set[str]) -> list[tuple[int, str, int]]:
    ordinary = (entry for entry in entries if entry[1] not in apart)
    return [(entry[0], entry[1], entry[2].free_cpu) for entry in islice(ordinary, EXAMPLES)]


def _capacity(found: tuple[int, str, int]) -> dict[str, Any]:
    negative, name, cpu = found
    return {"node": name, "free_memory_mb": _limited(-negative), "free_cpu_millis": _limited(cpu)}


def _examples(cluster: Cluster, search: Search) -> dict[str, list[dict[str, Any]]]:
    """A few nodes for each filter before capacity; of those that are available, the ones with the most free memory."""
    request, exclude, index = search.request, search.exclude, cluster.index
    known = sorted(node.name for node in _known(cluster, exclude))
    examples: dict[str, list[dict[str, Any]]] = {"excluded": [{"node": name} for name in known[:EXAMPLES]]}
    for reason, names in index.unavailable.items():
        examples[reason] = [{"node": name} for name in islice((n for n in names if n not in exclude), EXAMPLES)]
    wrong = [group for group in index.groups.values() if not supports(group.platform, request.platforms)]
    nodes = islice((node for node in _in_order(wrong) if node.name not in exclude), EXAMPLES)
    examples["platform"] = [{"node": node.name, "platform": node.platform} for node in nodes]
    chosen = set() if search.selection.few is not None else {id(group) for group in search.selection.groups}
    others = [
        group
        for group in index.groups.values()
        if supports(group.platform, request.platforms) and id(group) not in chosen
    ]
    unlike = (n for n in _in_order(others) if n.name not in exclude and not matches(n.labels, request.constraints))
    examples["labels"] = [
        {"node": node.name, "labels": {key: node.labels.get(key, "") for key, _ in request.constraints}}
        for node in islice(unlike, EXAMPLES)
    ]
    return examples


def _in_order(groups: Iterable[Group]) -> Iterator[Node]:
    return (entry[2] for entry in merge(*groups))


def _pin(cluster: Cluster, search: Search) -> dict[str, str]:
    """Why the pinned node did not take it: the one thing to look at, whatever the others lack."""
    pin = search.request.pin
    assert pin is not None
    node = cluster.nodes.get(pin)
    if node is None or not node.known:
        return {"node": pin, "rejected": "unknown"}
    if pin in search.exclude:
        return {"node": pin, "rejected": "excluded"}
    reason = ruled_out(node, search.request)
    if not reason:
        reason = next(iter(_Full(cluster, search).counts()))
    return {"node": pin, "rejected": reason}


def _sentence(search: Search, rejected: Mapping[str, int], nodes: int) -> str:
    """`1 of 3 replicas found no node: of 5 nodes 2 down, 3 without region=eu`."""
    request = search.request
    wanted = len(search.picks) + search.missing
    if not nodes:
        return f"{search.missing} of {wanted} replicas found no node: there are no nodes"
    texts = {
        "platform": f"not {' or '.join(request.platforms)}",
        "labels": f"without {', '.join(f'{key}={value}' for key, value in request.constraints)}",
        "pin": f"not the pinned node {request.pin}",
        "distinct_nodes": "with a replica already",
        "memory": f"with less than {request.memory_mb} MB of memory free",
        "cpu": f"with less than {request.cpu_millis} millicores free",
    }
    parts = ", ".join(f"{count} {texts.get(reason, reason)}" for reason, count in rejected.items())
    return f"{search.missing} of {wanted} replicas found no node: of {nodes} nodes {parts}"
