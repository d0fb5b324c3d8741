"""A node with what is reserved on it, and nodes in order, so that choosing one looks at a handful.

A **group** holds nodes that no request so far tells apart, ordered by free memory, most first, and cut into blocks that
know the most free CPU inside: nodes that have memory but no CPU are passed by a block at a time.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from services.scheduler.fitting import UNLIMITED, Request, matches, supports


class Node:
    """A node and what is reserved on it. One that is not `known` only has reservations: its record has not come yet."""

    __slots__ = (
        "cpu_millis", "cpu_used", "dirty", "entry", "free_cpu", "group", "known", "labels", "memory_mb", "memory_used",
        "name", "platform", "region", "replicas", "unavailable",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = False
        self.labels: Mapping[str, str] = {}
        self.region = ""
        self.platform = ""
        self.cpu_millis = 0
        self.memory_mb = 0
        self.unavailable = ""
        self.cpu_used = 0
        self.memory_used = 0
        self.replicas = 0
        # Kept by the index: where the node stands, and the free CPU that it stands there with.
        self.group: Group | None = None
        self.entry: Entry | None = None
        self.free_cpu = 0
        self.dirty = False

    def cpu_left(self) -> int:
        """Millicores that are not reserved."""
        if not self.cpu_millis:
            return UNLIMITED
        left = self.cpu_millis - self.cpu_used
        return left if left > 0 else 0

    def memory_left(self) -> int:
        """MiB that are not reserved."""
        if not self.memory_mb:
            return UNLIMITED
        left = self.memory_mb - self.memory_used
        return left if left > 0 else 0


Entry = tuple[int, str, Node]
"""`(-free memory, name, node)`: the order of nodes that hold equally many replicas."""


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


def ruled_out(node: Node, request: Request) -> str:
    """The first filter that the node fails whatever is reserved; "" if none."""
    if node.unavailable:
        return node.unavailable
    if not supports(node.platform, request.platforms):
        return "platform"
    if not matches(node.labels, request.constraints):
        return "labels"
    if request.pin is not None and request.pin != node.name:
        return "pin"
    return ""
