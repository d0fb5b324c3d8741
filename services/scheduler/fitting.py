"""What is placed, and whether platform, labels and capacity suffice for it.

Filters apply in one order, and the first that fails names the reason: `excluded`, why the node is unavailable,
`platform`, `labels`, `pin`, `distinct_nodes`, `memory`, `cpu`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

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


def too_full(cpu_left: int, memory_left: int, request: Request) -> str:
    """`memory` or `cpu` where it does not suffice, else ""."""
    if memory_left < request.memory_mb:
        return "memory"
    if cpu_left < request.cpu_millis:
        return "cpu"
    return ""
