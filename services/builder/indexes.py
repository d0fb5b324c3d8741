"""What the records say, seen from the side that a decision asks from. Derived: each record adds, and takes back.

* `lines`: who waits for a worker of a pool; `held`: how many workers of it an owner has; `served`: at which sequences
  an owner got one, as far as there are records of it.
* `running_at`: the build that a worker has; `open_in`: the builds of a pool that are not done with.
* `workers_of`, `leases_of`: the workers of a pool, and the leases of its workers.
* `ended_of`: the builds of an app that are done with, oldest first; `used`: how many releases name a build.
* `reports_of`, `reports_by`: the reports about a build, and of a worker.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from pydantic import BaseModel
from sortedcontainers import SortedSet

from services.builder.line import Line, Ticket
from shared import subjects
from shared.model.build import BuildStatus
from shared.model.build_worker import BuildReport, BuildWorker, LeaseRequest, WorkerLease
from shared.model.release import Release
from shared.subjects import Key, Kind

G = TypeVar("G", bound=Hashable)
E = TypeVar("E", bound=Hashable)

NOBODY = Line()


class Indexes:
    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.held: dict[str, dict[str, int]] = {}
        self.served: dict[tuple[str, str], Served] = {}
        self.running_at: dict[Key, Key] = {}
        self.open_in: dict[str, set[Key]] = {}
        self.workers_of: dict[str, set[str]] = {}
        self.leases_of: dict[str, set[str]] = {}
        self.requests_of: dict[str, set[str]] = {}
        self.ended_of: dict[Key, SortedSet[tuple[int, str]]] = {}
        self.used: dict[Key, int] = {}
        self.reports_of: dict[Key, set[Key]] = {}
        self.reports_by: dict[Key, set[Key]] = {}
        self._keepers: dict[Kind, Callable[[Key, Any, bool], None]] = {
            subjects.BUILD_STATUS: self._status,
            subjects.WORKER_LEASE: self._lease,
            subjects.LEASE_REQUEST: self._request,
            subjects.BUILD_REPORT: self._report,
            subjects.BUILD_WORKER: self._worker,
            subjects.RELEASE: self._release,
        }

    def change(self, kind: Kind, key: Key, old: BaseModel | None, new: BaseModel | None) -> None:
        """One record has become another; None = there is none."""
        keep = self._keepers.get(kind)
        if keep is None:
            return
        if old is not None:
            keep(key, old, False)
        if new is not None:
            keep(key, new, True)

    def line(self, pool: str) -> Line:
        return self.lines.get(pool, NOBODY)

    def served_at(self, pool: str, owner: str) -> int:
        """The sequence at which the owner was served last; 0 = no record says that it ever was."""
        found = self.served.get((pool, owner))
        return found.last() if found is not None else 0

    def _status(self, key: Key, status: BuildStatus, here: bool) -> None:
        if status.served_at_sequence:
            self._serve(status.pool, status.owner, key, status.served_at_sequence, here)
        _member(self.open_in, status.pool, key, here and not status.terminal)
        if status.state == "queued":
            self._wait(status.pool, status.owner, ticket_of(key, status), here)
        elif status.state == "running":
            _count(self.held.setdefault(status.pool, {}), status.owner, 1 if here else -1)
            if here:
                self.running_at[status.pool, status.worker] = key
            elif self.running_at.get((status.pool, status.worker)) == key:
                del self.running_at[status.pool, status.worker]
        else:
            ended = self.ended_of.get(key[:2])
            if ended is None:
                ended = self.ended_of[key[:2]] = SortedSet()
            (ended.add if here else ended.discard)((status.place, key[2]))

    def _lease(self, key: Key, lease: WorkerLease, here: bool) -> None:
        _member(self.leases_of, key[0], key[1], here)
        if lease.token and not lease.build:
            _count(self.held.setdefault(key[0], {}), lease.owner, 1 if here else -1)
        if lease.last_owner and lease.served_at_sequence:
            self._serve(key[0], lease.last_owner, key, lease.served_at_sequence, here)

    def _request(self, key: Key, request: LeaseRequest, here: bool) -> None:
        _member(self.requests_of, key[0], key[1], here)
        self._wait(key[0], request.owner, (1, request.place, ("lease", *key)), here)

    def _report(self, key: Key, report: BuildReport, here: bool) -> None:
        _member(self.reports_of, tuple(report.build.split("/")), key, here)
        _member(self.reports_by, key[:2], key, here)

    def _worker(self, key: Key, worker: BuildWorker, here: bool) -> None:
        _member(self.workers_of, key[0], key[1], here)

    def _release(self, key: Key, release: Release, here: bool) -> None:
        if release.build is not None:
            _count(self.used, (*key[:2], release.build), 1 if here else -1)

    def _wait(self, pool: str, owner: str, ticket: Ticket, here: bool) -> None:
        line = self.lines.setdefault(pool, Line())
        (line.join if here else line.leave)(owner, ticket)

    def _serve(self, pool: str, owner: str, by: Key, sequence: int, here: bool) -> None:
        served = self.served.get((pool, owner))
        if served is None:
            served = self.served[pool, owner] = Served()
        if here:
            served.add(by, sequence)
        elif served.remove(by):
            del self.served[pool, owner]


class Served:
    """When an owner got workers, by the record that says so. The last time is looked for again only when it is lost."""

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._last = 0

    def add(self, by: Key, sequence: int) -> None:
        self._at[by] = sequence
        self._last = max(self._last, sequence)

    def remove(self, by: Key) -> bool:
        """Whether nothing is left."""
        if self._at.pop(by, 0) == self._last:
            self._last = 0
        return not self._at

    def last(self) -> int:
        if not self._last:
            self._last = max(self._at.values(), default=0)
        return self._last


def ticket_of(key: Key, status: BuildStatus) -> Ticket:
    """Where a build stands among those of its owner."""
    return (0 if status.attempt else 1, status.place, ("build", *key))


def _member(index: dict[G, set[E]], group: G, key: E, here: bool) -> None:
    if here:
        index.setdefault(group, set()).add(key)
    elif group in index:
        index[group].discard(key)
        if not index[group]:
            del index[group]


def _count(index: dict[E, int], key: E, by: int) -> None:
    count = index.get(key, 0) + by
    if count:
        index[key] = count
    else:
        index.pop(key, None)
