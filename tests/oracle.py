"""Placement written straight from its rules, with plain lists and loops: slow, and obviously right.

The production code must choose the same nodes in the same order. Shares nothing with it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MOST = 2**63 - 1

ALIASES = {
    "x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "arm64/v8": "arm64", "armv7l": "arm", "arm/v7": "arm",
}  # fmt: skip
SYSTEMS = ["linux", "darwin", "windows", "freebsd"]
ARCHITECTURES = ["amd64", "arm64", "arm", "386", "riscv64", "ppc64le", "s390x"]


@dataclass
class OracleNode:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    platform: str = ""
    cpu_millis: int = 0
    memory_mb: int = 0
    unavailable: str = ""


@dataclass
class OracleReservation:
    node: str
    workload: str
    cpu_millis: int
    memory_mb: int


@dataclass
class OracleRequest:
    workload: str
    cpu_millis: int
    memory_mb: int
    constraints: Mapping[str, str] = field(default_factory=dict)
    platforms: tuple[str, ...] = ()
    distinct_nodes: bool = False
    pin: str | None = None


@dataclass
class OracleAnswer:
    nodes: list[str]
    shortfall: int
    rejected: dict[str, int]
    """After the picks: how many nodes fail which filter first."""
    feasible: int


@dataclass
class Tally:
    """What is reserved: per node, and of one workload per node and region."""

    cpu: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    on_node: dict[str, int] = field(default_factory=dict)
    in_region: dict[str, int] = field(default_factory=dict)


def tally(nodes: Iterable[OracleNode], reservations: Iterable[OracleReservation], workload: str) -> Tally:
    region_of = {node.name: node.labels.get("region", "") for node in nodes}
    sums = Tally()
    for reservation in reservations:
        name = reservation.node
        sums.cpu[name] = sums.cpu.get(name, 0) + reservation.cpu_millis
        sums.memory[name] = sums.memory.get(name, 0) + reservation.memory_mb
        if reservation.workload == workload:
            sums.on_node[name] = sums.on_node.get(name, 0) + 1
            if name in region_of:
                region = region_of[name]
                sums.in_region[region] = sums.in_region.get(region, 0) + 1
    return sums


def failed_filter(node: OracleNode, sums: Tally, request: OracleRequest, exclude: Collection[str]) -> str:
    """The first filter that the node fails; "" if it is feasible."""
    if node.name in exclude:
        return "excluded"
    if node.unavailable:
        return node.unavailable
    if request.platforms and not platform_supported(node.platform, request.platforms):
        return "platform"
    if request.constraints:
        for key, value in request.constraints.items():
            if node.labels.get(key, "") != value:
                return "labels"
    if request.pin is not None and node.name != request.pin:
        return "pin"
    if request.distinct_nodes and sums.on_node.get(node.name, 0) > 0:
        return "distinct_nodes"
    if node.memory_mb != 0 and sums.memory.get(node.name, 0) + request.memory_mb > node.memory_mb:
        return "memory"
    if node.cpu_millis != 0 and sums.cpu.get(node.name, 0) + request.cpu_millis > node.cpu_millis:
        return "cpu"
    return ""


def pick(nodes: Iterable[OracleNode], sums: Tally, request: OracleRequest, exclude: Collection[str] = ()) -> str | None:
    """The best node for one more replica, with `sums` as they are; None if there is none."""
    best = None
    for node in nodes:
        if failed_filter(node, sums, request, exclude):
            continue
        name = node.name
        free = max(0, node.memory_mb - sums.memory.get(name, 0)) if node.memory_mb != 0 else MOST
        in_region = sums.in_region.get(node.labels.get("region", ""), 0)
        key = (sums.on_node.get(name, 0), in_region, -free, name)
        if best is None or key < best:
            best = key
    return None if best is None else best[3]


def place(
    nodes: Sequence[OracleNode],
    reservations: Iterable[OracleReservation],
    request: OracleRequest,
    count: int,
    exclude: Collection[str] = (),
) -> list[str]:
    """The nodes of `count` replicas, in the order in which they were picked; fewer where nothing fits any more."""
    return _place(nodes, tally(nodes, reservations, request.workload), request, count, exclude)


def _place(
    nodes: Iterable[OracleNode], sums: Tally, request: OracleRequest, count: int, exclude: Collection[str]
) -> list[str]:
    by_name = {node.name: node for node in nodes}
    picked: list[str] = []
    for _ in range(count):
        name = pick(by_name.values(), sums, request, exclude)
        if name is None:
            break
        picked.append(name)
        count_replica(sums, by_name[name], request)
    return picked


def count_replica(sums: Tally, node: OracleNode, request: OracleRequest) -> None:
    """Add one replica on the node to what is reserved."""
    name, region = node.name, node.labels.get("region", "")
    sums.on_node[name] = sums.on_node.get(name, 0) + 1
    sums.in_region[region] = sums.in_region.get(region, 0) + 1
    sums.cpu[name] = sums.cpu.get(name, 0) + request.cpu_millis
    sums.memory[name] = sums.memory.get(name, 0) + request.memory_mb


def answer(
    nodes: Sequence[OracleNode],
    reservations: Iterable[OracleReservation],
    request: OracleRequest,
    count: int,
    exclude: Collection[str] = (),
) -> OracleAnswer:
    """`place`, and what became of every node after it."""
    sums = tally(nodes, reservations, request.workload)
    picked = _place(nodes, sums, request, count, exclude)
    failed = [failed_filter(node, sums, request, exclude) for node in nodes]
    rejected = {reason: failed.count(reason) for reason in set(failed) if reason}
    return OracleAnswer(picked, max(0, count) - len(picked), rejected, failed.count(""))


def platform_supported(platform: str, wanted: tuple[str, ...]) -> bool:
    if not wanted:
        return True
    if not platform.strip():
        return False
    for candidate in wanted:
        ours, theirs = _parts(platform), _parts(candidate)
        if ours is not None and theirs is not None:
            if ours == theirs:
                return True
        elif platform.strip().lower() == candidate.strip().lower():
            return True
    return False


def _parts(platform: str) -> tuple[str, str] | None:
    text = platform.strip().lower()
    if "/" not in text:
        return None
    system, architecture = text.split("/", 1)
    architecture = ALIASES.get(architecture, architecture)
    if system not in SYSTEMS or architecture not in ARCHITECTURES:
        return None
    return system, architecture
