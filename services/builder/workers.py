"""What a worker is good for: ten states, from its record, its lease and the time. The first row that fits counts.

| row | what is seen | state |
|---|---|---|
| 1 | leased, running, its lease alive, not being deleted | `LEASED` |
| 2 | leased, but failed, ended, being deleted, or silent past its lease | `UNUSABLE` |
| 3 | its ordinal is another's, or its name says another one | `UNMANAGED` |
| 4 | being deleted, or silent | `UNUSABLE` |
| 5 | pending, younger than `max_idle_seconds`; older | `PENDING`; `PENDING_EXPIRED` |
| 6 | running, every condition true, `idle_until` is no time | `OPERATIONAL_INVALID_EXPIRY` |
| 7 | the same, `idle_until` to come or now; past | `OPERATIONAL`; `OPERATIONAL_EXPIRED` |
| 8 | the same, never leased, at most `max_idle_seconds` old; older | `OPERATIONAL`; `OPERATIONAL_EXPIRED` |
| 9 | running, some condition false, for less than `ready_timeout_seconds`; longer | `STARTING`; `STARTING_EXPIRED` |
| 10 | anything else | `UNUSABLE` |

A lease is always one of this builder, whichever instance granted it: it is a record, so a restart adopts it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from shared.model.build import BuildPool
from shared.model.build_worker import BuildWorker, WorkerLease

NO_LEASE = WorkerLease()
AN_INSTANT = timedelta.resolution
_ORDINAL = re.compile(r".*-([0-9]+)")


class WorkerState(Enum):
    """In the order, and with the names, of the seed."""

    UNMANAGED = "Unmanaged"
    LEASED = "Leased"
    PENDING = "Pending"
    PENDING_EXPIRED = "PendingExpired"
    STARTING = "Starting"
    STARTING_EXPIRED = "StartingExpired"
    OPERATIONAL = "Operational"
    OPERATIONAL_EXPIRED = "OperationalExpired"
    OPERATIONAL_INVALID_EXPIRY = "OperationalInvalidExpiry"
    UNUSABLE = "Unusable"

    def __str__(self) -> str:
        return self.value


LEASABLE = frozenset({
    WorkerState.OPERATIONAL, WorkerState.OPERATIONAL_EXPIRED, WorkerState.OPERATIONAL_INVALID_EXPIRY,
})  # fmt: skip
COMING = frozenset({WorkerState.PENDING, WorkerState.STARTING, WorkerState.OPERATIONAL})
"""Each of these takes one of those who wait, sooner or later."""
IDLE_TOO_LONG = WorkerState.OPERATIONAL_EXPIRED


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the table looks at. `changed_at` is when the worker's record was stored last, by the server's clock.

    `lease_ends` is when its lease ends if nothing is heard; `silent_at` when it counts as silent, None = never.
    """

    name: str
    record: BuildWorker
    changed_at: datetime
    lease: WorkerLease = NO_LEASE
    lease_ends: datetime | None = None
    silent_at: datetime | None = None
    foreign: bool = False


@dataclass(slots=True)
class Observation:
    """A worker and its state, until `until` at least if nothing happens. Prints as `<worker> - <state>`."""

    facts: Facts
    state: WorkerState
    until: datetime | None = None

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def ordinal(self) -> int:
        return self.facts.record.ordinal

    def mark_leased(self) -> None:
        """This pass has given it away."""
        self.state = WorkerState.LEASED

    def __str__(self) -> str:
        return f"{self.name} - {self.state}"


def observe_worker(facts: Facts, pool: BuildPool, now: datetime) -> Observation:
    """The table of the module. Pure."""
    state, until = _state(facts, pool, now)
    if state is WorkerState.UNUSABLE:
        return Observation(facts, state)
    pending = (at for at in (until, facts.silent_at, facts.lease_ends) if at is not None and at > now)
    return Observation(facts, state, min(pending, default=None))


def _state(facts: Facts, pool: BuildPool, now: datetime) -> tuple[WorkerState, datetime | None]:
    record = facts.record
    silent = facts.silent_at is not None and facts.silent_at <= now
    if facts.lease.token:
        ended = facts.lease_ends is not None and facts.lease_ends <= now
        bad = record.phase in ("failed", "succeeded") or record.deleting or ended or silent
        return (WorkerState.UNUSABLE if bad else WorkerState.LEASED), None
    if facts.foreign:
        return WorkerState.UNMANAGED, None
    if record.deleting or silent:
        return WorkerState.UNUSABLE, None
    match record.phase:
        case "pending":
            until = record.created_at + timedelta(seconds=pool.max_idle_seconds)
            return (WorkerState.PENDING, until) if now < until else (WorkerState.PENDING_EXPIRED, None)
        case "running" if record.conditions.all:
            return _operational(facts, pool, now)
        case "running":
            until = facts.changed_at + timedelta(seconds=pool.ready_timeout_seconds)
            return (WorkerState.STARTING, until) if now < until else (WorkerState.STARTING_EXPIRED, None)
        case _:
            return WorkerState.UNUSABLE, None


def _operational(facts: Facts, pool: BuildPool, now: datetime) -> tuple[WorkerState, datetime | None]:
    until = facts.lease.idle_until
    if isinstance(until, str):
        return WorkerState.OPERATIONAL_INVALID_EXPIRY, None
    if until is None:
        until = facts.record.created_at + timedelta(seconds=pool.max_idle_seconds)
    return (WorkerState.OPERATIONAL, until + AN_INSTANT) if now <= until else (WorkerState.OPERATIONAL_EXPIRED, None)


def foreigners(workers: Iterable[tuple[str, BuildWorker]]) -> set[str]:
    """Those who claim an ordinal that their name contradicts, or that an older worker has."""
    claims: dict[int, tuple[datetime, str]] = {}
    found: set[str] = set()
    for name, record in workers:
        match = _ORDINAL.fullmatch(name)
        if match is not None and int(match[1]) != record.ordinal:
            found.add(name)
            continue
        claim = (record.created_at, name)
        held = claims.setdefault(record.ordinal, claim)
        if held != claim:
            found.add(max(held, claim)[1])
            claims[record.ordinal] = min(held, claim)
    return found


def leasable(observations: Iterable[Observation], pool: BuildPool) -> list[Observation]:
    """Those that may be given away now, the lowest ordinal first, so that the tail can go."""
    return [each for each in observations if each.state in LEASABLE and each.ordinal < pool.max_workers]
