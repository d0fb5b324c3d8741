"""Giving free workers of a pool to those who wait, turn by turn.

A build goes to the free worker that built its cache key last, if there is one; else to the lowest ordinal, so that the
tail can be given up. A worker that lost an attempt of the build comes last. Nobody waits for a better worker.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from services.builder import leases
from services.builder.draft import Draft
from services.builder.line import Turns
from services.builder.orders import order_for
from services.builder.state import State
from services.builder.workers import Observation, leasable
from shared import subjects
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import LeaseRequest
from shared.subjects import Key

MESSAGES_PER_GRANT = 4


class Dispatch:
    """`run` once; then `drafts` has one decision per worker given away, and `granted` the requests among them."""

    def __init__(
        self,
        state: State,
        name: str,
        pool: BuildPool,
        observations: list[Observation],
        now: datetime,
        held: Mapping[str, int],
        decided: frozenset[Key],
    ) -> None:
        self._state, self._name, self._pool, self._now = state, name, pool, now
        self._held, self._decided = held, decided
        self._line = state.indexes.line(name)
        self._free = OrderedDict((each.name, each) for each in leasable(observations, pool))
        self._by_cache: dict[str, str] = {}
        for each in self._free.values():
            if each.facts.lease.cache_key:
                self._by_cache.setdefault(each.facts.lease.cache_key, each.name)
        self.eligible = self._line.eligible(self._held, pool.owner_limit)
        self.drafts: list[Draft] = []
        self.granted: frozenset[str] = frozenset()

    def run(self, room: int) -> bool:
        """Whether the room ended it, not the workers or those who wait."""
        if not self._free or not len(self._line):
            return False
        turns = turns_of(self._state, self._name, self._held)
        granted: set[str] = set()
        while self._free and (turn := turns.peek()) is not None:
            if room < MESSAGES_PER_GRANT:
                return True
            owner, (what, *key) = turn
            if what == "build" and tuple(key) in self._decided:
                turns.pass_over()  # it has just been queued again or ended: the next pass sees what it is now
                continue
            taken = self._build(owner, tuple(key)) if what == "build" else self._lease(owner, (key[0], key[1]))
            if not taken:
                turns.skip()
                continue
            turns.take()
            room -= MESSAGES_PER_GRANT
            if what == "lease":
                granted.add(key[1])
        self.granted = frozenset(granted)
        return False

    def _build(self, owner: str, key: Key) -> bool:
        state = self._state
        request = state.get(subjects.BUILD, key, BuildRequest)
        status = state.get(subjects.BUILD_STATUS, key, BuildStatus)
        if request is None or status is None or request.canceled:
            return False  # a look at the build ends it
        chosen, why = self._choose(status)
        if chosen is None:
            return False
        attempt, sequence = status.attempt + 1, state.sequence
        token = leases.token("/".join(key), attempt, sequence)
        worker = chosen.facts.record
        lease = leases.granted(owner, chosen.name, worker, self._pool, token, self._now)
        place = (self._name, chosen.name)
        draft = self._draft("build", key, f"attempt {attempt} on {chosen.name}: {why}", owner)
        draft.cause = state.sequence_of(subjects.BUILD, key)
        update = {
            "state": "running",
            "attempt": attempt,
            "token": token,
            "worker": chosen.name,
            "started_at": self._now,
            "deadline": self._now + timedelta(seconds=self._pool.build_timeout_seconds),
            "served_at_sequence": sequence,
        }
        draft.change(subjects.BUILD_STATUS, key, status.replaced(**update))
        kept = {"build": "/".join(key), "cache_key": request.cache_key or chosen.facts.lease.cache_key}
        draft.change(subjects.WORKER_LEASE, place, lease.replaced(**kept))
        order = order_for(state.config, key, request, attempt, token, worker.created_at)
        draft.change(subjects.BUILD_ORDER, place, order)
        self._take(chosen, draft)
        return True

    def _lease(self, owner: str, key: Key) -> bool:
        request = self._state.get(subjects.LEASE_REQUEST, key, LeaseRequest)
        if request is None or not leases.asks(request, self._now):
            return False
        chosen = self._free[min(self._free, key=lambda name: self._free[name].facts.record.takes_orders)]
        sequence = self._state.sequence
        token = leases.token("/".join(key), 1, sequence)
        lease = leases.granted(owner, chosen.name, chosen.facts.record, self._pool, token, self._now)
        place = (self._name, chosen.name)
        draft = self._draft("lease", place, f"leased to {owner}", owner)
        draft.cause = self._state.sequence_of(subjects.LEASE_REQUEST, key)
        kept = {
            "request": key[1],
            "cache_key": chosen.facts.lease.cache_key,
            "last_owner": owner,
            "served_at_sequence": sequence,
        }
        draft.change(subjects.WORKER_LEASE, place, lease.replaced(**kept))
        draft.change(subjects.LEASE_REQUEST, key, None)
        self._take(chosen, draft)
        return True

    def _draft(self, about: str, key: Key, outcome: str, owner: str) -> Draft:
        reasons: dict[str, Any] = {"owner": owner, "owner_holds": self._held.get(owner, 0), "free": len(self._free)}
        return Draft(self._state, about, key, self._now, outcome=outcome, reasons=reasons)

    def _choose(self, status: BuildStatus) -> tuple[Observation | None, str]:
        cached = self._free.get(self._by_cache.get(status.cache_key, "")) if status.cache_key else None
        if cached is not None and cached.facts.record.takes_orders and cached.name not in status.lost_on:
            return cached, f"it built {status.cache_key} last"
        last = None
        for each in self._free.values():
            if not each.facts.record.takes_orders:
                continue
            if each.name not in status.lost_on:
                return each, "it is the first that is free"
            last = last or each
        return last, "no other is free"

    def _take(self, chosen: Observation, draft: Draft) -> None:
        del self._free[chosen.name]
        cache_key = chosen.facts.lease.cache_key
        if self._by_cache.get(cache_key) == chosen.name:
            del self._by_cache[cache_key]
        chosen.mark_leased()
        self.drafts.append(draft)


def turns_of(state: State, name: str, held: Mapping[str, int] | None = None) -> Turns:
    """Whose turn it is in a pool, from now on."""
    indexes = state.indexes
    return Turns(
        indexes.line(name),
        indexes.held.get(name, {}) if held is None else held,
        lambda owner: indexes.served_at(name, owner),
        state.pool(name).owner_limit,
        state.sequence,
    )
