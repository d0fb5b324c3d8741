"""One look at a pool: end what has ended, give free workers to those who wait, say how many workers there should be.

    ends → observe → dispatch → give up waiting → scale → clean up

Leases of builds end with their builds (`builds`); here end those of clients, and those that no build stands behind.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from services.builder import leases
from services.builder.dispatch import Dispatch, turns_of
from services.builder.draft import Draft
from services.builder.scale import determine_replicas
from services.builder.state import State
from services.builder.workers import COMING, NO_LEASE, Facts, Observation, WorkerState, foreigners, observe_worker
from shared import subjects
from shared.model.build import BuildPool, BuildStatus
from shared.model.build_worker import BuildOrder, BuildWorker, LeaseRequest, WorkerLease, WorkerScale
from shared.subjects import Key

ROOM_TO_SCALE = 4
"""The messages of the last step."""

MOST_CLEANED = 20
NONE_ENDED: Mapping[str, WorkerLease] = {}


@dataclass(slots=True)
class PoolLook:
    """The drafts of a look, for how many messages there is room, when to look again, and whether more is left."""

    room: int
    drafts: list[Draft] = field(default_factory=list)
    wakes: list[datetime] = field(default_factory=list)
    more: bool = False

    @property
    def wake_at(self) -> datetime | None:
        return min(self.wakes, default=None)

    def add(self, draft: Draft) -> bool:
        """False where there is no room for it."""
        size = draft.size
        if size > self.room:
            self.more = True
            return False
        self.room -= size
        self.drafts.append(draft)
        return True


def decide_pool(state: State, name: str, now: datetime, room: int, decided: Sequence[Draft] = ()) -> PoolLook:
    """At most `room` messages. `decided` are builds that end in the same pass: what they give back is given out."""
    look = PoolLook(room - ROOM_TO_SCALE)
    exists = state.get(subjects.BUILD_POOL, (name,), BuildPool) is not None
    pool = state.pool(name)
    given_back = {
        change.key[1]: change.record
        for draft in decided
        for change in draft.changes
        if change.kind is subjects.WORKER_LEASE and change.key[0] == name and isinstance(change.record, WorkerLease)
    }
    held = held_after(state, name, given_back)
    ended = given_back | _ends(state, name, pool, now, look)
    observations = observe_pool(state, name, now, ended)
    dispatch = Dispatch(state, name, pool, observations, now, held, frozenset(draft.key for draft in decided))
    if exists and not look.more:
        look.more = dispatch.run(look.room)
        look.room -= sum(draft.size for draft in dispatch.drafts)
        look.drafts += dispatch.drafts
    left = dispatch.eligible - len(dispatch.drafts) if exists else 0
    if not look.more:
        _give_up(state, name, dispatch.granted, now, look)
        _clean(state, name, now, look)
    if not look.more and not decided:  # else those who wait are counted in the next pass, which sees them all
        look.drafts.append(_scaled(state, name, pool if exists else None, observations, left, now))
    if unheard := _unheard(observations, now):
        for draft in look.drafts:
            draft.observation = {**draft.observation, **unheard}
    look.wakes += [at for each in observations if (at := each.until) is not None]
    look.wakes += [draft.wake_at for draft in look.drafts if draft.wake_at is not None]
    return look


def held_after(state: State, name: str, given_back: Mapping[str, WorkerLease]) -> dict[str, int]:
    """How many workers each owner holds once these are given back."""
    held = Counter(state.indexes.held.get(name, {}))
    for worker in given_back:
        lease = state.get(subjects.WORKER_LEASE, (name, worker), WorkerLease)
        if lease is not None:
            held[lease.owner] -= 1
    return dict(held)


def observe_pool(
    state: State, name: str, now: datetime, ended: Mapping[str, WorkerLease] = NONE_ENDED
) -> list[Observation]:
    """Its workers in the order of their ordinals; a lease in `ended` is what becomes of the one that stands."""
    pool = state.pool(name)
    workers = [
        (worker, record)
        for worker in state.indexes.workers_of.get(name, ())
        if (record := state.get(subjects.BUILD_WORKER, (name, worker), BuildWorker)) is not None
    ]
    foreign = foreigners(workers)
    found = [
        observe_worker(_facts(state, name, pool, worker, record, worker in foreign, ended.get(worker)), pool, now)
        for worker, record in workers
    ]
    return sorted(found, key=lambda each: (each.ordinal, each.name))


def _facts(
    state: State, name: str, pool: BuildPool, worker: str, record: BuildWorker, foreign: bool, ended: WorkerLease | None
) -> Facts:
    key = (name, worker)
    lease = ended or state.get(subjects.WORKER_LEASE, key, WorkerLease) or NO_LEASE
    hearing, ttl = state.hearing(key), leases.ttl(pool)
    changed_at = state.tables[subjects.BUILD_WORKER][key].at
    silent_at = hearing.silent_at(record, changed_at, ttl)
    return Facts(worker, record, changed_at, lease, hearing.ends(lease, ttl), silent_at, foreign)


def _ends(state: State, name: str, pool: BuildPool, now: datetime, look: PoolLook) -> dict[str, WorkerLease]:
    """Leases that are over: the holder is told by the next renewal."""
    found: dict[str, WorkerLease] = {}
    for worker in sorted(state.indexes.leases_of.get(name, ())):
        key = (name, worker)
        lease = state.get(subjects.WORKER_LEASE, key, WorkerLease)
        if lease is None or not lease.token:
            continue
        reason = _orphaned(state, lease) if lease.build else _client_lost(state, key, lease, pool, now)
        if not reason:
            if not lease.build and (ends := state.hearing(key).ends(lease, leases.ttl(pool))) is not None:
                look.wakes.append(ends)
            continue
        draft = Draft(state, "lease", key, now, outcome=f"the lease of {lease.owner} ended: {reason}")
        draft.observation = state.hearing(key).observation()
        free = leases.released(lease, pool, now)
        draft.change(subjects.WORKER_LEASE, key, free)
        if not look.add(draft):
            break
        found[worker] = free
    return found


def _client_lost(state: State, key: Key, lease: WorkerLease, pool: BuildPool, now: datetime) -> str:
    worker = state.get(subjects.BUILD_WORKER, key, BuildWorker)
    ends = state.hearing(key).ends(lease, leases.ttl(pool))
    return leases.lost(lease, worker, state.deleted(subjects.BUILD_WORKER, key), ends, now)


def _orphaned(state: State, lease: WorkerLease) -> str:
    status = state.get(subjects.BUILD_STATUS, tuple(lease.build.split("/")), BuildStatus)
    stands = status is not None and status.state == "running" and status.token == lease.token
    return "" if stands else f"build {lease.build} does not have it any more"


def _give_up(state: State, name: str, granted: frozenset[str], now: datetime, look: PoolLook) -> None:
    """Requests whose time is over, or whose requester does not ask any more."""
    for identity in sorted(state.indexes.requests_of.get(name, ())):
        key = (name, identity)
        request = state.get(subjects.LEASE_REQUEST, key, LeaseRequest)
        if request is None or identity in granted:
            continue
        draft = Draft(state, "lease_request", key, now)
        until = min(request.deadline, request.expires_at)
        if until <= now:
            # No explanation is kept: it would outlive the request, and the requester is answered.
            draft.change(subjects.LEASE_REQUEST, key, None)
        draft.wake(until)
        if not look.add(draft):
            break


def _scaled(
    state: State, name: str, pool: BuildPool | None, observations: list[Observation], left: int, now: datetime
) -> Draft:
    draft = Draft(state, "pool", (name,), now)
    least, most = (pool.min_workers, pool.max_workers) if pool is not None else (0, 0)
    wanted = determine_replicas(observations, left, min_workers=least, max_workers=most)
    standing = state.get(subjects.WORKER_SCALE, (name,), WorkerScale)
    if standing is None and pool is None:
        return draft
    if pool is None and not observations and wanted.replicas == 0:
        draft.outcome = "the pool is gone, and so are its workers"
        draft.change(subjects.WORKER_SCALE, (name,), None)
    elif standing is None or (standing.replicas, standing.replace) != (wanted.replicas, wanted.replace):
        states = Counter(str(each.state) for each in observations)
        seen = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no workers"
        reason = f"{left} wait; {seen}"
        scale = WorkerScale(replicas=wanted.replicas, replace=wanted.replace, reason=reason)
        before = standing.replicas if standing is not None else 0
        draft.outcome = f"{before} → {wanted.replicas} workers: {reason}"
        draft.reasons = {"waiting": left, "workers": dict(sorted(states.items())), "replace": list(wanted.replace)}
        draft.change(subjects.WORKER_SCALE, (name,), scale)
    if pool is not None:
        _tell_of_waiting(draft, state, name, pool, observations, left)
    return draft


def _tell_of_waiting(
    draft: Draft, state: State, name: str, pool: BuildPool, observations: list[Observation], left: int
) -> None:
    """Somebody waits, and for longer than a worker takes there has been none."""
    if not left or any(each.state in (*COMING, WorkerState.LEASED) for each in observations):
        draft.end_notice("no_worker")
        return
    since = waiting_since(state, name)
    if since is None:
        return
    told_at = since + timedelta(seconds=pool.ready_timeout_seconds)
    if told_at <= draft.now:
        draft.notice("no_worker", "warning", f"{left} wait for a worker of pool {name}, and none is coming up")
    draft.wake(told_at)


def waiting_since(state: State, name: str) -> datetime | None:
    """Since when the one whose turn it is has waited."""
    turn = turns_of(state, name).peek()
    if turn is None:
        return None
    _, (what, *key) = turn
    if what == "build":
        status = state.get(subjects.BUILD_STATUS, tuple(key), BuildStatus)
        return status.queued_at if status is not None else None
    request = state.get(subjects.LEASE_REQUEST, tuple(key), LeaseRequest)
    return request.requested_at if request is not None else None


def _unheard(observations: list[Observation], now: datetime) -> dict[str, list[str]]:
    """The workers that owed a heartbeat and sent none, and those whose lease ended for want of one with its token."""
    silent = [each.name for each in observations if (at := each.facts.silent_at) is not None and at <= now]
    unrenewed = [each.name for each in observations if (at := each.facts.lease_ends) is not None and at <= now]
    return {name: found for name, found in (("silent", silent), ("unrenewed", unrenewed)) if found}


def _clean(state: State, name: str, now: datetime, look: PoolLook) -> None:
    """What is left of workers that are gone: their leases, orders and reports."""
    for worker in sorted(state.indexes.leases_of.get(name, ())):
        key = (name, worker)
        lease = state.get(subjects.WORKER_LEASE, key, WorkerLease)
        if lease is None or lease.token or not state.deleted(subjects.BUILD_WORKER, key):
            continue
        draft = Draft(state, "lease", key, now)
        draft.change(subjects.WORKER_LEASE, key, None)
        if state.get(subjects.BUILD_ORDER, key, BuildOrder) is not None:
            draft.change(subjects.BUILD_ORDER, key, None)
        for report in sorted(state.indexes.reports_by.get(key, ()))[:MOST_CLEANED]:
            draft.change(subjects.BUILD_REPORT, report, None, expected=state.sequence_of(subjects.BUILD_REPORT, report))
        if ("builder", "lease", *key) in state.tables[subjects.DECISION]:
            draft.change(subjects.DECISION, ("builder", "lease", *key), None)
        if not look.add(draft):
            break
