"""The available nodes, ordered so that choosing one looks at a handful.

Nodes form **groups**: equal region, equal platform, and the same answers to every label constraint that was asked for so
far. A request takes whole groups or leaves them, so its filters are answered once per group, and remembered. A
constraint that only few nodes meet (a label like `hostname`) forms no group: those few are listed instead.

Each group is an **order** by free memory, most first, cut into blocks that know the most free CPU inside: nodes that
have memory but no CPU are passed by a block at a time. Reservations only mark a node; it moves at the next look.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from sortedcontainers import SortedSet

from services.scheduler.fitting import Node, Request, matches, supports

Entry = tuple[int, str, Node]
"""`(-free memory, name, node)`: the order of nodes that hold equally many replicas."""

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


class Group:
    """Nodes of one region that no request so far tells apart, the one with the most free memory first."""

    __slots__ = ("_blocks", "_cpu", "_lasts", "_most", "met", "platform", "region", "size")

    def __init__(
        self, block: int, region: str, platform: str = "", met: frozenset[tuple[str, str]] = frozenset()
    ) -> None:
        self._most = 2 * block
        self.region = region
        self.platform = platform
        self.met = met
        self.size = 0
        self._blocks: list[list[Entry]] = []
        self._lasts: list[Entry] = []
        self._cpu: list[int] = []  # at least the most free CPU in the block

    def add(self, entry: Entry) -> None:
        self.size += 1
        if self._blocks:
            self._put(entry)
        else:
            self._insert_block(0, [entry])

    def remove(self, entry: Entry) -> None:
        self.size -= 1
        self._take(entry)

    def move(self, old: Entry, new: Entry) -> None:
        """The node of `old` stands at `new` from now on."""
        self._take(old)
        if self._blocks:
            self._put(new)
        else:
            self._insert_block(0, [new])

    def _put(self, entry: Entry) -> None:
        lasts = self._lasts
        at = bisect_left(lasts, entry)
        if at == len(lasts):
            at -= 1
            lasts[at] = entry
        block = self._blocks[at]
        insort(block, entry)
        if self._cpu[at] < entry[2].free_cpu:  # noqa: PLR1730 - the hottest line, and max() is a call
            self._cpu[at] = entry[2].free_cpu
        if len(block) > self._most:
            self._split(at, block)

    def _take(self, entry: Entry) -> None:
        at = bisect_left(self._lasts, entry)
        block = self._blocks[at]
        del block[bisect_left(block, entry)]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at], self._cpu[at]

    def _split(self, at: int, block: list[Entry]) -> None:
        half = len(block) // 2
        self._insert_block(at + 1, block[half:])
        del block[half:]
        self._lasts[at] = block[-1]
        self._cpu[at] = _most_cpu(block)

    def _insert_block(self, at: int, block: list[Entry]) -> None:
        self._blocks.insert(at, block)
        self._lasts.insert(at, block[-1])
        self._cpu.insert(at, _most_cpu(block))

    def first(self, request: Request, own: Collection[str], exclude: Collection[str]) -> Entry | None:
        """The best node that fits and is in neither collection."""
        if not self._blocks:
            return None
        entry = self._blocks[0][0]
        if entry[0] > -request.memory_mb:
            return None
        if entry[2].free_cpu >= request.cpu_millis and entry[1] not in own and entry[1] not in exclude:
            return entry
        return self.next(entry, request, own, exclude)

    def next(self, after: Entry, request: Request, own: Collection[str], exclude: Collection[str]) -> Entry | None:
        """The best node behind `after` that fits and is in neither collection."""
        for entry in self._with_cpu(request.cpu_millis, after):
            if entry[0] > -request.memory_mb:
                return None
            if entry[1] not in own and entry[1] not in exclude:
                return entry
        return None

    def _with_cpu(self, cpu_millis: int, after: Entry) -> Iterator[Entry]:
        """Behind `after`, those with so much free CPU, in order."""
        at = bisect_left(self._lasts, after)
        if at == len(self._lasts):
            return
        block = self._blocks[at]
        for entry in islice(block, bisect_right(block, after), None):
            if entry[2].free_cpu >= cpu_millis:
                yield entry
        for position in range(at + 1, len(self._blocks)):
            if self._cpu[position] < cpu_millis:
                continue
            block = self._blocks[position]
            found = False
            for entry in block:
                if entry[2].free_cpu >= cpu_millis:
                    found = True
                    yield entry
            if not found:
                self._cpu[position] = _most_cpu(block)

    def with_memory(self, memory_mb: int) -> int:
        """How many nodes have so much memory free."""
        bound = (1 - memory_mb,)
        at = bisect_left(self._lasts, bound)
        before = sum(map(len, self._blocks[:at]))
        return before + (bisect_left(self._blocks[at], bound) if at < len(self._blocks) else 0)

    def from_rank(self, rank: int) -> Iterator[Entry]:
        """The nodes in order, without the first `rank`."""
        for block in self._blocks:
            if rank >= len(block):
                rank -= len(block)
                continue
            yield from islice(block, rank, None)
            rank = 0

    def __iter__(self) -> Iterator[Entry]:
        return self.from_rank(0)


def _most_cpu(block: list[Entry]) -> int:
    return max(entry[2].free_cpu for entry in block)


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
