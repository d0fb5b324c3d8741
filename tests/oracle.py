"""Placement written straight from its rules, with plain lists and loops: slow, and obviously right.

The production code must choose the same nodes in the same order. Shares nothing with it.
"""

from collections.abc import Iterable, Mapping
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


def place(
    nodes: Iterable[OracleNode],
    reservations: Iterable[OracleReservation],
    request: OracleRequest,
    count: int,
    exclude: Iterable[str] = (),
) -> OracleAnswer:
    nodes = sorted(nodes, key=lambda node: node.name)
    exclude = set(exclude)
    region_of = {node.name: node.labels.get("region", "") for node in nodes}
    cpu: dict[str, int] = {}
    memory: dict[str, int] = {}
    on_node: dict[str, int] = {}
    in_region: dict[str, int] = {}
    for reservation in reservations:
        cpu[reservation.node] = cpu.get(reservation.node, 0) + reservation.cpu_millis
        memory[reservation.node] = memory.get(reservation.node, 0) + reservation.memory_mb
        if reservation.workload == request.workload:
            on_node[reservation.node] = on_node.get(reservation.node, 0) + 1
            if reservation.node in region_of:
                region = region_of[reservation.node]
                in_region[region] = in_region.get(region, 0) + 1

    def failed_filter(node: OracleNode) -> str:
        if node.name in exclude:
            return "excluded"
        if node.unavailable:
            return node.unavailable
        if not platform_supported(node.platform, request.platforms):
            return "platform"
        for key, value in request.constraints.items():
            if node.labels.get(key, "") != value:
                return "labels"
        if request.pin is not None and node.name != request.pin:
            return "pin"
        if request.distinct_nodes and on_node.get(node.name, 0) > 0:
            return "distinct_nodes"
        if node.memory_mb != 0 and memory.get(node.name, 0) + request.memory_mb > node.memory_mb:
            return "memory"
        if node.cpu_millis != 0 and cpu.get(node.name, 0) + request.cpu_millis > node.cpu_millis:
            return "cpu"
        return ""

    picked: list[str] = []
    for _ in range(count):
        best = None
        for node in nodes:
            if failed_filter(node):
                continue
            free = MOST
            if node.memory_mb != 0:
                free = max(0, node.memory_mb - memory.get(node.name, 0))
            region = region_of[node.name]
            key = (on_node.get(node.name, 0), in_region.get(region, 0), -free, node.name)
            if best is None or key < best:
                best = key
        if best is None:
            break
        name = best[3]
        picked.append(name)
        on_node[name] = on_node.get(name, 0) + 1
        in_region[region_of[name]] = in_region.get(region_of[name], 0) + 1
        cpu[name] = cpu.get(name, 0) + request.cpu_millis
        memory[name] = memory.get(name, 0) + request.memory_mb

    rejected: dict[str, int] = {}
    feasible = 0
    for node in nodes:
        reason = failed_filter(node)
        if reason:
            rejected[reason] = rejected.get(reason, 0) + 1
        else:
            feasible += 1
    return OracleAnswer(picked, max(0, count) - len(picked), rejected, feasible)


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
