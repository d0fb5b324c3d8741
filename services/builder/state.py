"""What the builder knows: the records it reads, and the indexes that keep the cost of a decision at what changed.

`fold` puts one version of one record in and marks the targets that have to be looked at: a build, a pool, an app (whose
old builds may go). Indexes are derived from the records alone (`indexes`), so the order between different subjects does
not matter. `settle` takes the marks away that a committed pass has looked at, unless something has changed since.

Telemetry (`observe`) never mixes with the records: it is kept beside them with the time of its receipt.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel
from sortedcontainers import SortedDict, SortedSet

from services.builder.config import BuilderConfig
from services.builder.indexes import Indexes
from services.builder.leases import Heard, Hearing
from shared import subjects
from shared.model.build import BuildPool, BuildStatus
from shared.model.build_worker import BuildReport
from shared.model.live import BuildSample
from shared.service import Plan, Sample, Version
from shared.subjects import Key, Kind

SERVICE = "builder"
Target = tuple[str, ...]
"""`("build", project, app, id)`, `("pool", name)` or `("app", project, app)`."""

READS: tuple[Kind, ...] = (
    subjects.BUILD, subjects.BUILD_POOL, subjects.RELEASE,
    subjects.BUILD_WORKER, subjects.BUILD_REPORT,
    subjects.BUILD_STATUS, subjects.BUILD_ORDER, subjects.WORKER_LEASE, subjects.LEASE_REQUEST, subjects.WORKER_SCALE,
    subjects.DECISION, subjects.NOTICE,
)  # fmt: skip
REMEMBERED = frozenset({subjects.BUILD, subjects.BUILD_STATUS, subjects.BUILD_WORKER})
"""Kinds whose tombstone says something: no record at all means hold, only a tombstone ends what it named."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Look:
    """What a pass found out about one target: when to look again, and the mark that it saw."""

    mark: int | None
    wake_at: datetime | None = None


class State:
    """See the module. All of it is private to the builder; `decide` reads it and changes nothing."""

    def __init__(self, config: BuilderConfig = BuilderConfig()) -> None:  # noqa: B008 - a frozen value
        self.config = config
        self.sequence = 0
        self.tables: dict[Kind, dict[Key, Version]] = {kind: {} for kind in READS}
        self.indexes = Indexes()
        self.heard: dict[Key, Heard] = {}
        self.attended_at: datetime | None = None
        self.dirty: SortedDict[Target, int] = SortedDict()
        self.due: SortedSet[tuple[datetime, Target]] = SortedSet()
        self.due_at: dict[Target, datetime] = {}
        self.marks = 0

    def get(self, kind: Kind, key: Key, model: type[M]) -> M | None:
        """The record under a key, None where there is none or it is deleted."""
        version = self.tables[kind].get(key)
        return version.record if version is not None and isinstance(version.record, model) else None

    def sequence_of(self, kind: Kind, key: Key) -> int:
        version = self.tables[kind].get(key)
        return version.sequence if version is not None else 0

    def deleted(self, kind: Kind, key: Key) -> bool:
        """Whether a tombstone says so; never having existed is not being deleted."""
        version = self.tables[kind].get(key)
        return version is not None and version.record is None

    def pool(self, name: str) -> BuildPool:
        """The pool's rules; the defaults where nobody has said any, for what is under way there."""
        return self.get(subjects.BUILD_POOL, (name,), BuildPool) or BuildPool()

    def hearing(self, worker: Key) -> Hearing:
        return Hearing(self.heard.get(worker), self.attended_at)

    def mark(self, target: Target) -> None:
        self.marks += 1
        self.dirty[target] = self.marks


def fold(state: State, version: Version) -> None:
    """Put one version of one record into the state. Total and idempotent; ignores what the builder does not read."""
    kind, key = version.kind, version.key
    table = state.tables.get(kind)
    if table is None or (kind in (subjects.DECISION, subjects.NOTICE) and key[0] != SERVICE):
        return
    state.sequence = max(state.sequence, version.sequence)
    old = table.get(key)
    if old is not None and old.sequence >= version.sequence:
        return
    if version.record is None and kind not in REMEMBERED:
        table.pop(key, None)
    else:
        table[key] = version
    state.indexes.change(kind, key, old.record if old is not None else None, version.record)
    _mark(state, version, old.record if old is not None else None)


def _mark(state: State, version: Version, old: BaseModel | None) -> None:
    kind, key = version.kind, version.key
    if kind is subjects.BUILD:
        state.mark(("build", *key))
    elif kind is subjects.BUILD_STATUS:
        _mark_status(state, key, old, version.record)
    elif kind is subjects.BUILD_REPORT:
        for report in (old, version.record):
            if isinstance(report, BuildReport) and report.build.count("/") == 2:
                state.mark(("build", *report.build.split("/")))
    elif kind is subjects.BUILD_WORKER:
        state.mark(("pool", key[0]))
        build = state.indexes.running_at.get(key)
        if build is not None:
            state.mark(("build", *build))
    elif kind is subjects.BUILD_POOL:
        _mark_pool(state, key[0])
    elif kind in (subjects.WORKER_LEASE, subjects.LEASE_REQUEST, subjects.WORKER_SCALE):
        state.mark(("pool", key[0]))
    elif kind is subjects.RELEASE and version.record is None:
        state.mark(("app", *key[:2]))


def _mark_status(state: State, key: Key, old: BaseModel | None, new: BaseModel | None) -> None:
    state.mark(("build", *key))
    for status in (old, new):
        if isinstance(status, BuildStatus):
            state.mark(("pool", status.pool))
    if isinstance(new, BuildStatus) and new.terminal:
        state.mark(("app", *key[:2]))


def _mark_pool(state: State, name: str) -> None:
    """Its rules have changed: everything under way in it may be due earlier or later."""
    state.mark(("pool", name))
    for key in state.indexes.open_in.get(name, ()):
        state.mark(("build", *key))


def observe(state: State, sample: Sample, received_at: datetime) -> None:
    """Take a heartbeat of a worker."""
    if not isinstance(sample.body, BuildSample):
        return
    worker = tuple(sample.name.split("/"))
    before = state.heard.get(worker)
    state.heard[worker] = Heard(sample.body.token, received_at)
    ttl = state.pool(worker[0]).lease_ttl_seconds
    if before is None or (received_at - before.at).total_seconds() >= ttl or before.token != sample.body.token:
        state.mark(("pool", worker[0]))
        build = state.indexes.running_at.get(worker)
        if build is not None:
            state.mark(("build", *build))


def attend(state: State, now: datetime) -> None:
    """Telemetry is heard from `now` on: nobody is silent for a time in which nobody listened."""
    state.attended_at = now
    state.heard.clear()
    for kind in (subjects.BUILD_POOL, subjects.BUILD_WORKER, subjects.WORKER_LEASE):
        for key in state.tables[kind]:
            state.mark(("pool", key[0]))
    for build in state.indexes.running_at.values():
        state.mark(("build", *build))


def settle(state: State, plan: Plan, now: datetime) -> None:
    """A pass is done: take its marks away, except where something has changed since, and note when to look again."""
    for target, look in plan.looks.items():
        if look.mark is not None and state.dirty.get(target) == look.mark:
            del state.dirty[target]
        _set_due(state, target, look.wake_at)


def _set_due(state: State, target: Target, at: datetime | None) -> None:
    before = state.due_at.pop(target, None)
    if before is not None:
        state.due.discard((before, target))
    if at is not None:
        state.due_at[target] = at
        state.due.add((at, target))
