"""The available nodes, by what tells them apart.

Nodes form **groups**: equal region, equal platform, and the same answers to every label constraint that was asked for so
far. A request takes whole groups or leaves them, so its filters are answered once per group, and remembered. A
constraint that only few nodes meet (a label like `hostname`) forms no group: those few are listed instead.

Each group is in order (`groups`). Reservations only mark a node; it moves at the next look.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sortedcontainers import SortedSet

from services.scheduler.fitting import Request, matches, supports
from services.scheduler.groups import Group, Node

Signature = tuple[str, str, frozenset[tuple[str, str]]]

MAX_SELECTIONS = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """Where the index changes its ways; tests make them small. They change costs, never answers.

    `block` nodes stand together in a group (twice as many at most); a constraint that at most `few` nodes meet lists
    them; at most `asked` constraints tell groups apart, then this starts over.
    """

    block: int = 64
    few: int = 64
    asked: int = 64


DEFAULT_SIZES = Sizes()


@dataclass(frozen=True, slots=True)
class Selection:
    """The available nodes that pass the filters of platform and labels: whole groups, or a few nodes."""

    groups: tuple[Group, ...]
    few: tuple[Node, ...] | None
    size: int
    rejected: Mapping[str, int]
    """How many nodes are unavailable, by reason, or fail the filters of platform and labels; those of 0 left out."""

    def orders(self) -> tuple[Group, ...]:
        """The nodes in order, by region."""
        return self.groups if self.few is None else orders_of(self.few)


def orders_of(nodes: Iterable[Node]) -> tuple[Group, ...]:
    """A few nodes as passing groups, one per region."""
    groups: dict[str, Group] = {}
    for node in nodes:
        assert node.entry is not None, f"{node.name} is not available"
        groups.setdefault(node.region, Group(DEFAULT_SIZES.block, node.region)).add(node.entry)
    return tuple(groups.values())


class Index:
    """Keeps known nodes in their groups; unavailable ones by their reason."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self.groups: dict[Signature, Group] = {}
        self.unavailable: dict[str, SortedSet] = {}
        self.size = 0
        self.available = 0
        self._labelled: dict[tuple[str, str], dict[str, Node]] = {}
        self._asked: set[tuple[str, str]] = set()
        self._selections: dict[tuple[tuple[tuple[str, str], ...], tuple[str, ...]], Selection] = {}
        self._dirty: list[Node] = []

    def insert(self, node: Node) -> None:
        """Take in a known node; `remove` it before anything but its reservations changes."""
        self.size += 1
        for pair in node.labels.items():
            self._labelled.setdefault(pair, {})[node.name] = node
        if node.unavailable:
            self.unavailable.setdefault(node.unavailable, SortedSet()).add(node.name)
        else:
            self.available += 1
            self._join(node)
        self._selections.clear()

    def remove(self, node: Node) -> None:
        self.size -= 1
        for pair in node.labels.items():
            labelled = self._labelled[pair]
            del labelled[node.name]
            if not labelled:
                del self._labelled[pair]
        if node.unavailable:
            names = self.unavailable[node.unavailable]
            names.remove(node.name)
            if not names:
                del self.unavailable[node.unavailable]
        else:
            self.available -= 1
            self._leave(node)
        self._selections.clear()

    def touch(self, node: Node) -> None:
        """What is reserved on the node, which stands in a group and is not marked yet, has changed."""
        node.dirty = True
        self._dirty.append(node)

    def settle(self) -> None:
        """Move the nodes whose reservations changed since the last look."""
        for node in self._dirty:
            node.dirty = False
            group, entry = node.group, node.entry
            if group is None or entry is None:
                continue
            memory, cpu = -node.memory_left(), node.cpu_left()
            if memory != entry[0] or cpu != node.free_cpu:
                node.entry, node.free_cpu = (memory, entry[1], node), cpu
                group.move(entry, node.entry)
        self._dirty.clear()

    def select(self, request: Request) -> Selection:
        """The available nodes that pass the filters of platform and labels. Settles first."""
        if self._dirty:
            self.settle()
        key = (request.constraints, request.platforms)
        selection = self._selections.get(key)
        if selection is None:
            selection = self._select(request)
            if len(self._selections) >= MAX_SELECTIONS:
                self._selections.clear()
            self._selections[key] = selection
        return selection

    def _select(self, request: Request) -> Selection:
        few = self._few(request)
        if few is None:
            self._ask(request.constraints)
        right = [group for group in self.groups.values() if supports(group.platform, request.platforms)]
        right_size = sum(group.size for group in right)
        groups: tuple[Group, ...] = ()
        if few is None:
            groups = tuple(group for group in right if _meets(group, request.constraints))
        size = sum(group.size for group in groups) if few is None else len(few)
        rejected = {reason: len(names) for reason, names in sorted(self.unavailable.items())}
        rejected |= {"platform": self.available - right_size, "labels": right_size - size}
        return Selection(groups, few, size, {reason: count for reason, count in rejected.items() if count})

    def _few(self, request: Request) -> tuple[Node, ...] | None:
        """The nodes that match, where some constraint leaves only few; None where they are not so few."""
        pairs = [pair for pair in request.constraints if pair[1] != ""]
        if not pairs:
            return None
        labelled = min((self._labelled.get(pair, {}) for pair in pairs), key=len)
        if len(labelled) > self._sizes.few:
            return None
        return tuple(
            node
            for node in labelled.values()
            if not node.unavailable
            and supports(node.platform, request.platforms)
            and matches(node.labels, request.constraints)
        )

    def _ask(self, constraints: tuple[tuple[str, str], ...]) -> None:
        """Tell nodes apart by these constraints too."""
        new = {pair for pair in constraints if pair[0] != "region"} - self._asked
        if not new:
            return
        if len(self._asked) + len(new) > self._sizes.asked:
            self._asked = {pair for pair in constraints if pair[0] != "region"}
        else:
            self._asked |= new
        for node in [entry[2] for group in list(self.groups.values()) for entry in group]:
            self._leave(node)
            self._join(node)
        self._selections.clear()

    def _join(self, node: Node) -> None:
        met = frozenset(pair for pair in self._asked if node.labels.get(pair[0], "") == pair[1])
        signature = (node.region, node.platform, met)
        group = self.groups.get(signature)
        if group is None:
            group = self.groups[signature] = Group(self._sizes.block, *signature)
        node.free_cpu = node.cpu_left()
        node.entry = (-node.memory_left(), node.name, node)
        node.group = group
        group.add(node.entry)

    def _leave(self, node: Node) -> None:
        group = node.group
        assert group is not None and node.entry is not None, f"{node.name} is in no group"
        group.remove(node.entry)
        if not group.size:
            del self.groups[group.region, group.platform, group.met]
        node.group = node.entry = None


def _meets(group: Group, constraints: tuple[tuple[str, str], ...]) -> bool:
    return all(group.region == value if key == "region" else (key, value) in group.met for key, value in constraints)
