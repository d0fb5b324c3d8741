"""What is placed, what it is placed on, and the filters that need neither an index nor the rest of the cluster.

Filters apply in one order, and the first that fails names the reason: `excluded`, why the node is unavailable,
`platform`, `labels`, `pin`, `distinct_nodes`, `memory`, `cpu`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.scheduler.node_index import Entry, Group

UNLIMITED = 2**63 - 1
"""Free amount of a resource whose capacity is unreported."""

_ARCHITECTURES = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "aarch64": "arm64",
    "arm64/v8": "arm64",
    "armv7l": "arm",
    "arm/v7": "arm",
}
_KNOWN_ARCHITECTURES = frozenset({"amd64", "arm64", "arm", "386", "riscv64", "ppc64le", "s390x"})
_KNOWN_SYSTEMS = frozenset({"linux", "darwin", "windows", "freebsd"})


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be placed. `cpu_millis` and `memory_mb` are effective (above 0), `constraints` sorted by label."""

    workload: str
    cpu_millis: int
    memory_mb: int
    constraints: tuple[tuple[str, str], ...] = ()
    platforms: tuple[str, ...] = ()
    distinct_nodes: bool = False
    pin: str | None = None


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


@lru_cache(maxsize=1024)
def normal_platform(platform: str) -> str:
    """`Linux/aarch64` → `linux/arm64`; what is not known stays as it is, trimmed and in lower case."""
    raw = platform.strip().lower()
    system, _, architecture = raw.partition("/")
    architecture = _ARCHITECTURES.get(architecture, architecture)
    if system in _KNOWN_SYSTEMS and architecture in _KNOWN_ARCHITECTURES:
        return f"{system}/{architecture}"
    return raw


@lru_cache(maxsize=4096)
def supports(platform: str, platforms: tuple[str, ...]) -> bool:
    """Whether a node of this (normal) platform runs an image of these; no platforms = runs anywhere."""
    if not platforms:
        return True
    return platform != "" and any(normal_platform(wanted) == platform for wanted in platforms)


def matches(labels: Mapping[str, str], constraints: tuple[tuple[str, str], ...]) -> bool:
    """Every constraint equals the label; a missing label reads as the empty string."""
    return all(labels.get(key, "") == value for key, value in constraints)


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


def too_full(cpu_left: int, memory_left: int, request: Request) -> str:
    """`memory` or `cpu` where it does not suffice, else ""."""
    if memory_left < request.memory_mb:
        return "memory"
    if cpu_left < request.cpu_millis:
        return "cpu"
    return ""
