"""What the records say, seen from the side that a decision asks from. Derived: each record adds, and takes back.

* `lines`: who waits for a worker of a pool; `held`: how many workers of it an owner has; `served`: at which sequences
  an owner got one, as far as there are records of it.
* `running_at`: the build that a worker has; `open_in`: the builds of a pool that are not done with.
* `workers_of`, `leases_of`: the workers of a pool, and the leases of its workers.
* `ended_of`: the builds of an app that are done with, oldest first; `used`: how many releases name a build.
* `reports_of`, `reports_by`: the reports about a build, and of a worker.
"""

from collections.abc import Hashable
from typing import TypeVar

from pydantic import BaseModel
from sortedcontainers import SortedSet

from services.builder.line import Line, Ticket
from shared import subjects
from shared.model.build import BuildStatus
from shared.model.build_worker import BuildReport, LeaseRequest, WorkerLease
from shared.model.release import Release
from shared.subjects import Key, Kind

G = TypeVar("G", bound=Hashable)
E = TypeVar("E", bound=Hashable)

NOBODY = Line()


class Indexes:
    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.held: dict[str, dict[str, int]] = {}
        self.served: dict[tuple[str, str], SortedSet[tuple[int, str]]] = {}
        self.running_at: dict[Key, Key] = {}
        self.open_in: dict[str, set[Key]] = {}
        self.workers_of: dict[str, set[str]] = {}
        self.leases_of: dict[str, set[str]] = {}
        self.requests_of: dict[str, set[str]] = {}
        self.ended_of: dict[Key, SortedSet[tuple[int, str]]] = {}
        self.used: dict[Key, int] = {}
        self.reports_of: dict[Key, set[Key]] = {}
        self.reports_by: dict[Key, set[Key]] = {}

    def change(self, kind: Kind, key: Key, old: BaseModel | None, new: BaseModel | None) -> None:
        """One record has become another; None = there is none."""
        for record, here in ((old, False), (new, True)):
            match record:
                case BuildStatus():
                    self._status(key, record, here)
                case WorkerLease():
                    self._lease(key, record, here)
                case LeaseRequest():
                    _member(self.requests_of, key[0], key[1], here)
                    self._wait(key[0], record.owner, (1, record.place, ("lease", *key)), here)
                case BuildReport():
                    _member(self.reports_of, tuple(record.build.split("/")), key, here)
                    _member(self.reports_by, key[:2], key, here)
                case Release() if record.build is not None:
                    build = (*key[:2], record.build)
                    _count(self.used, build, 1 if here else -1)
                case _:
                    pass
        if kind is subjects.BUILD_WORKER:
            _member(self.workers_of, key[0], key[1], new is not None)

    def line(self, pool: str) -> Line:
        return self.lines.get(pool, NOBODY)

    def served_at(self, pool: str, owner: str) -> int:
        """The sequence at which the owner was served last; 0 = no record says that it ever was."""
        found = self.served.get((pool, owner))
        return found[-1][0] if found else 0

    def _status(self, key: Key, status: BuildStatus, here: bool) -> None:
        if status.served_at_sequence:
            self._serve(status.pool, status.owner, (status.served_at_sequence, "/".join(key)), here)
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
            ended = self.ended_of.setdefault(key[:2], SortedSet())
            (ended.add if here else ended.discard)((status.place, key[2]))

    def _lease(self, key: Key, lease: WorkerLease, here: bool) -> None:
        _member(self.leases_of, key[0], key[1], here)
        if lease.token and not lease.build:
            _count(self.held.setdefault(key[0], {}), lease.owner, 1 if here else -1)
        if lease.last_owner and lease.served_at_sequence:
            self._serve(key[0], lease.last_owner, (lease.served_at_sequence, f"at {key[1]}"), here)

    def _wait(self, pool: str, owner: str, ticket: Ticket, here: bool) -> None:
        line = self.lines.setdefault(pool, Line())
        (line.join if here else line.leave)(owner, ticket)

    def _serve(self, pool: str, owner: str, turn: tuple[int, str], here: bool) -> None:
        if here:
            self.served.setdefault((pool, owner), SortedSet()).add(turn)
        elif (pool, owner) in self.served:
            turns = self.served[pool, owner]
            turns.discard(turn)
            if not turns:
                del self.served[pool, owner]


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
