"""What the pooler knows: the records it reads, and the indexes that keep the cost of a decision at what changed.

Indexes are derived from the records alone, so the order between different subjects does not matter. What is dirty,
due or queued is only looked at again: a state that was just loaded looks at everything.

Of what there is very much of, only that is held which deciding takes: of a function its pool and its row, of assignments
and instances those of pools, and of these only who is ready where.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel
from sortedcontainers import SortedSet

from services.pooler.access import PoolKey, Said
from shared import subjects
from shared.model.pool import Pool, PoolingPolicy, PoolPlacement
from shared.service import Version
from shared.subjects import Key, Kind

SERVICE = "pooler"
Target = Key
"""What is looked at: a pool by its four tokens, a function by its two."""
POOL_TOKENS = 4
Place = Key
"""Node and assignment id."""

READS: tuple[Kind, ...] = (
    subjects.RUNTIME, subjects.POOLING_POLICY, subjects.ACCESS, subjects.FUNCTION,
    subjects.ASSIGNMENT, subjects.INSTANCE,
    subjects.PLACEMENT, subjects.POOL,
    subjects.DECISION, subjects.NOTICE,
)  # fmt: skip
_DIGESTED = (subjects.ACCESS, subjects.FUNCTION, subjects.ASSIGNMENT, subjects.INSTANCE)
"""Kinds of which no record is held."""
_TABLES = tuple(kind for kind in READS if kind not in _DIGESTED)
DEFAULT_POLICY = PoolingPolicy()

M = TypeVar("M", bound=BaseModel)
G = TypeVar("G", bound=Hashable)
E = TypeVar("E", bound=Hashable)


class Look(NamedTuple):
    """What a pass found out about a pool: when to look again, and whether it waits for its turn.

    `mark` is the mark that the pass saw: where it has moved since, the pool is looked at again. Of a function a pass
    remembers its mark and nothing else.
    """

    mark: int | None
    wake_at: datetime | None = None
    queued: bool = False


class Candidate(NamedTuple):
    """A function: the pool that it declares, what a host is told of it (`row`, JSON), and what it adds to its worker."""

    pool: PoolKey
    sequence: int
    said: Said
    row: str
    cpu_millis: int
    memory_mb: int


class Access(NamedTuple):
    """What a function owns and was granted, each sorted and once."""

    sequence: int
    owned: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Worker:
    """An assignment of a pool."""

    pool: PoolKey
    config_hash: str
    runs: bool
    sequence: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a pool host says of its members; nothing while it is not up."""

    members: Mapping[str, str]
    sequence: int


class State:
    """See the module. All of it is private to the pooler; `decide` reads it and changes nothing."""

    def __init__(self) -> None:
        self.sequence = 0
        self.tables: dict[Kind, dict[Key, Version]] = {kind: {} for kind in _TABLES}
        self.placements = self.tables[subjects.PLACEMENT]
        self._pools = self.tables[subjects.POOL]
        self._policies = self.tables[subjects.POOLING_POLICY]
        self._decisions = self.tables[subjects.DECISION]
        self.hosts: dict[str, Mapping[str, Any]] = {}
        """What each runtime runs, as JSON has it."""
        self.functions: dict[Key, Candidate] = {}
        self.access: dict[Key, Access] = {}
        self.gone: dict[Key, int] = {}
        """The functions that a tombstone says are deleted, with its sequence."""
        self.groups: dict[PoolKey, list[str]] = {}
        """The functions that declare a pool, in order."""
        self.guests: dict[Key, tuple[PoolKey, ...]] = {}
        """The pools of which a function is a member without declaring them: it is on its way to another."""
        self.queuing: dict[PoolKey, set[Key]] = {}
        """The functions whose placement says that they wait for their turn to go to a pool."""
        self.pools_in: dict[str, set[PoolKey]] = {}
        self.pools_with: dict[str, set[PoolKey]] = {}
        """Pools that are declared or exist, by namespace and by runtime."""
        self.workers: dict[Place, Worker] = {}
        self.workers_of: dict[PoolKey, set[Place]] = {}
        self.reports: dict[Place, Report] = {}
        self.changing: dict[str, SortedSet[tuple[datetime, PoolKey]]] = {}
        """By namespace, the pools whose new worker has not loaded its members yet, with the end of that."""
        self.changing_until: dict[PoolKey, datetime] = {}
        self.queued: dict[str, SortedSet[PoolKey]] = {}
        self.dirty_pools: SortedSet[PoolKey] = SortedSet()
        self.pool_marks: dict[PoolKey, int] = {}
        """The marks of the dirty pools."""
        self.dirty_functions: dict[Key, int] = {}
        """Functions to be looked at by themselves: those of small pools are looked at with their pool."""
        self.due: SortedSet[tuple[datetime, PoolKey]] = SortedSet()
        self.due_at: dict[PoolKey, datetime] = {}
        self.marks = 0

    def get(self, kind: Kind, key: Key, model: type[M]) -> M | None:
        """The record under a key, None where there is none or it is deleted."""
        version = self.tables[kind].get(key)
        return version.record if version is not None and isinstance(version.record, model) else None

    def explained(self, about: str, key: Key) -> bool:
        """Whether a decision of ours about this is in force."""
        return (SERVICE, about, *key) in self._decisions

    def wanted(self, function: Key) -> PoolKey | None:
        """The pool that a function declares."""
        candidate = self.functions.get(function)
        return candidate.pool if candidate is not None else None

    def newest(self, namespace: str, names: Iterable[str]) -> int:
        """The sequence of the newest record of these functions, which exist; 0 for none."""
        return max([self.functions[namespace, name].sequence for name in names], default=0)

    def cause(self, function: Key) -> int:
        """The sequence of the newest record of the function: of its own, or of its access."""
        candidate, access = self.functions.get(function), self.access.get(function)
        of_its_own = candidate.sequence if candidate is not None else self.gone.get(function, 0)
        return max(of_its_own, access.sequence if access is not None else 0)

    def runtime_deleted(self, runtime: str) -> bool:
        """Whether a tombstone says so; never having existed is not being deleted."""
        version = self.tables[subjects.RUNTIME].get((runtime,))
        return version is not None and version.record is None

    def pool(self, key: PoolKey) -> Pool | None:
        version = self._pools.get(key)
        return cast(Pool, version.record) if version is not None else None

    def placement(self, function: Key) -> PoolPlacement | None:
        version = self.placements.get(function)
        return cast(PoolPlacement, version.record) if version is not None else None

    def is_member(self, function: Key, pool: PoolKey) -> bool:
        record = self.pool(pool)
        return record is not None and function[1] in record.members

    def policy(self, namespace: str) -> PoolingPolicy:
        version = self._policies.get((namespace,))
        return cast(PoolingPolicy, version.record) if version is not None else DEFAULT_POLICY

    def ready(self, pool: PoolKey, name: str) -> bool:
        """Whether a worker of the pool that is to run says that it has loaded this member."""
        for place in self.workers_of.get(pool, ()):
            report = self.reports.get(place)
            if report is not None and self.workers[place].runs and report.members.get(name) == "ready":
                return True
        return False

    def mark_pool(self, pool: PoolKey) -> None:
        self.marks += 1
        if pool not in self.pool_marks:
            self.dirty_pools.add(pool)
        self.pool_marks[pool] = self.marks

    def mark_function(self, function: Key) -> None:
        self.marks += 1
        self.dirty_functions[function] = self.marks


def member(index: dict[G, set[E]], group: G, key: E, here: bool) -> None:
    """Put `key` into a group of an index, or take it out, and the group with it once it is empty."""
    if here:
        index.setdefault(group, set()).add(key)
    elif group in index:
        index[group].discard(key)
        if not index[group]:
            del index[group]
