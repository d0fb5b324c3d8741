"""Who of the functions that declare one pool is in it: the policy, pure and deterministic.

An `Assigner` answers for one function (`assign`) and for a pool as a whole (`admit`); both say the same. Two drivers:

* `ByName`: the first by name, whoever runs. The answer depends on nothing but who declares the pool.
* `Stable`: who was admitted stays; a newcomer waits, whatever its name. The answer depends on who is in the pool.

Neither looks at whether a function runs or is ready, and neither invents or splits workers.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, Protocol

from services.pooler.access import PoolKey

MAX_TOGETHER = 128
"""So many functions of one pool are looked at as a whole; of more, only those that matter."""


class Declared(NamedTuple):
    """A function, and the pool that it declares; None = it names no worker."""

    name: str
    key: PoolKey | None


class PoolAssignment(NamedTuple):
    """Where a function lands. Not `pooled`: it runs alone. `rejected`: the pool is full, for the `reason`."""

    pooled: bool = False
    key: PoolKey | None = None
    rejected: bool = False
    reason: str = ""


class Assigner(Protocol):
    """Places functions in the pools that they declare."""

    def assign(
        self, function: Declared | None, key: PoolKey, same_key: Iterable[Declared | None], limit: int
    ) -> PoolAssignment:
        """Place `function`, which has this key, among those of `same_key` that have it too; it need not be one of them.

        Raises `ValueError` without a function, and for a limit below 1 where the function is pooled.
        """
        ...

    def admit(self, names: Sequence[str], limit: int) -> list[str]:
        """Those of the names, which come in order, that are in the pool: at most `limit`, in order.

        The cost is that of the limit, not of the number of names.
        """
        ...


@dataclass(frozen=True, slots=True)
class ByName:
    """The first by name."""

    def assign(
        self, function: Declared | None, key: PoolKey, same_key: Iterable[Declared | None], limit: int
    ) -> PoolAssignment:
        return _assign(self, function, key, same_key, limit)

    def admit(self, names: Sequence[str], limit: int) -> list[str]:
        return list(names[:limit])


@dataclass(frozen=True, slots=True)
class Stable:
    """Those that are in the pool already (`incumbents`), then the first by name."""

    incumbents: Collection[str] = ()

    def assign(
        self, function: Declared | None, key: PoolKey, same_key: Iterable[Declared | None], limit: int
    ) -> PoolAssignment:
        return _assign(self, function, key, same_key, limit)

    def admit(self, names: Sequence[str], limit: int) -> list[str]:
        kept = sorted(name for name in set(self.incumbents) if is_among(name, names))[:limit]
        if len(kept) == limit:
            return kept
        known = set(kept)
        newcomers = islice((name for name in names if name not in known), limit - len(kept))
        return sorted([*kept, *newcomers])


def assigner(admission: Literal["by_name", "stable"], incumbents: Collection[str]) -> Assigner:
    """The driver that a namespace has chosen, for a pool in which the incumbents are."""
    return Stable(incumbents) if admission == "stable" else ByName()


def is_among(name: str, names: Sequence[str]) -> bool:
    """Whether names that come in order have this one."""
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name


def strangers(members: Iterable[str], declared: Sequence[str]) -> list[str]:
    """The members, in order, that are not among those who declare the pool, who come in order."""
    if len(declared) <= MAX_TOGETHER:
        return sorted(set(members).difference(declared))
    return [name for name in members if not is_among(name, declared)]


def full(key: PoolKey, limit: int) -> str:
    """Why a function is not admitted."""
    return f"pool {key} is full ({limit}); use another pooling.worker"


def unknown_runtime(runtime: str) -> str:
    """Why no function of this runtime is admitted."""
    return f"runtime {runtime}: there is no Runtime of that name"


def _assign(
    driver: Assigner, function: Declared | None, key: PoolKey, same_key: Iterable[Declared | None], limit: int
) -> PoolAssignment:
    if function is None:
        raise ValueError("function must not be None")
    if function.key is None:
        return PoolAssignment()
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    names = {each.name for each in same_key if each is not None and each.key == key} | {function.name}
    if function.name in driver.admit(sorted(names), limit):
        return PoolAssignment(pooled=True, key=key)
    return PoolAssignment(pooled=True, key=key, rejected=True, reason=full(key, limit))
