"""What clients of the pool ask for, answered by the leader after its commit: `lease`, `renew`, `release`.

* `lease` `{pool, owner, wait_seconds?, id?}` → `{worker, address, token, expires_at, request}`. Whoever waits is a
  record, so the place in the queue survives a restart; asking again with the same `id` keeps it, for the same lease.
* `renew` `{worker, token}` → `{worker, expires_at}`.
* `release` `{worker or address, token}` → `{released}`; or `{pool, id}`: give the place in the queue up, and the lease
  that may have come of it.

Whatever is wrong is refused with its reason, and changes nothing.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from services.builder import leases
from services.builder.state import State
from shared import subjects
from shared.errors import InvalidSubject, SteerError
from shared.model.build import OWNER_PATTERN, BuildPool
from shared.model.build_worker import BuildWorker, LeaseRequest, WorkerLease
from shared.service import Change, Command, Decision
from shared.subjects import Key, Kind

MAX_WAIT_SECONDS = 86_400
_OWNER = re.compile(OWNER_PATTERN[1:-1])

Request = Mapping[str, Any]


# -- lease --------------------------------------------------------------------------------------------------------------


def decide_lease(state: State, request: Request, now: datetime) -> Decision | None:
    """Join the queue, or keep the place in it."""
    key = _request_key(request)
    owner = _owner(request)
    wait = _seconds(request.get("wait_seconds", 0))
    pool = state.get(subjects.BUILD_POOL, key[:1], BuildPool)
    if pool is None:
        raise SteerError(f"pool: {key[0]} does not exist")
    held = _lease_of(state, key)
    standing = state.get(subjects.LEASE_REQUEST, key, LeaseRequest)
    other = held[1].owner if held is not None else standing.owner if standing is not None else owner
    if other != owner:
        raise SteerError(f"id: {key[1]} is a request of {other}, not of {owner}")
    if held is not None:
        return None
    patience = leases.ttl(pool)
    if standing is None:
        deadline = now + timedelta(seconds=wait)
        place = state.sequence
        joined = LeaseRequest(
            owner=owner, requested_at=now, deadline=deadline, expires_at=min(deadline, now + patience), place=place
        )
        return _decision("lease_request", key, Change(subjects.LEASE_REQUEST, key, joined))
    if standing.expires_at - now < patience / 2 and standing.expires_at < standing.deadline:
        kept = standing.replaced(expires_at=min(standing.deadline, now + patience))
        return _decision("lease_request", key, Change(subjects.LEASE_REQUEST, key, kept))
    return None


def answer_lease(state: State, request: Request, now: datetime) -> Mapping[str, Any] | None:
    """The lease; None while it waits. Raises `SteerError` once no worker was free in time."""
    key = _request_key(request)
    held = _lease_of(state, key)
    if held is not None:
        place, lease = held
        return {
            "worker": leases.named(place),
            "address": lease.address,
            "token": lease.token,
            "expires_at": lease.expires_at,
            "ttl_seconds": state.pool(key[0]).lease_ttl_seconds,
            "request": key[1],
        }
    if state.get(subjects.LEASE_REQUEST, key, LeaseRequest) is not None:
        return None
    raise SteerError(f"{leases.NONE_FREE} in pool {key[0]} in time")


# -- renew --------------------------------------------------------------------------------------------------------------


def decide_renew(state: State, request: Request, now: datetime) -> Decision | None:
    key, lease = _held(state, request)
    pool = state.pool(key[0])
    worker = state.get(subjects.BUILD_WORKER, key, BuildWorker)
    ends = state.hearing(key).ends(lease, leases.ttl(pool))
    lost = leases.lost(lease, worker, state.deleted(subjects.BUILD_WORKER, key), ends, now)
    if lost:
        raise SteerError(f"the lease of {leases.named(key)} has ended: {lost}")
    renewed = lease.replaced(expires_at=now + leases.ttl(pool))
    return _decision("lease", key, Change(subjects.WORKER_LEASE, key, renewed))


def answer_renew(state: State, request: Request, now: datetime) -> Mapping[str, Any]:
    key, lease = _held(state, request)
    return {"worker": leases.named(key), "expires_at": lease.expires_at}


# -- release ------------------------------------------------------------------------------------------------------------


def decide_release(state: State, request: Request, now: datetime) -> Decision | None:
    if "worker" not in request and "address" not in request:
        return _give_up(state, request, now)
    key, lease = _held(state, request)
    if lease.build:
        raise SteerError(f"{leases.named(key)} is held by build {lease.build}: cancel the build")
    return _released(state, key, lease, now)


def answer_release(state: State, request: Request, now: datetime) -> Mapping[str, Any]:
    if "worker" in request or "address" in request:
        return {"released": request.get("worker") or request.get("address")}
    return {"released": request.get("id")}


def _give_up(state: State, request: Request, now: datetime) -> Decision:
    key = _request_key(request)
    held = _lease_of(state, key)
    if held is not None:
        return _released(state, *held, now)
    if state.get(subjects.LEASE_REQUEST, key, LeaseRequest) is None:
        raise SteerError(f"id: nobody waits in pool {key[0]} under {key[1]}, nor has a lease by it")
    return _decision("lease_request", key, Change(subjects.LEASE_REQUEST, key, None))


def _released(state: State, key: Key, lease: WorkerLease, now: datetime) -> Decision:
    free = leases.released(lease, state.pool(key[0]), now)
    outcome = f"{lease.owner} gave it back"
    return Decision("lease", key, outcome, (Change(subjects.WORKER_LEASE, key, free),))


# -- what a request names -----------------------------------------------------------------------------------------------


def _decision(about: str, key: Key, change: Change) -> Decision:
    """Changes that need no explanation beside them."""
    return Decision(about, key, "", (change,), explain=False)


def _lease_of(state: State, request: Key) -> tuple[Key, WorkerLease] | None:
    """The lease that came of a request, and its worker."""
    pool, identity = request
    for worker in sorted(state.indexes.leases_of.get(pool, ())):
        lease = state.get(subjects.WORKER_LEASE, (pool, worker), WorkerLease)
        if lease is not None and lease.token and lease.request == identity:
            return (pool, worker), lease
    return None


def _held(state: State, request: Request) -> tuple[Key, WorkerLease]:
    """The lease that a request names by its worker or its address, and proves by its token."""
    key = _by_address(state, request["address"]) if "address" in request else _worker(request.get("worker"))
    lease = state.get(subjects.WORKER_LEASE, key, WorkerLease)
    name = request.get("address", leases.named(key))
    if lease is None or not lease.token:
        raise SteerError(f"{name} is not leased")
    if request.get("token") != lease.token:
        raise SteerError(f"token: not that of the lease of {name}, which is another's by now")
    return key, lease


def _by_address(state: State, text: Any) -> Key:
    address = leases.check_address(text) if isinstance(text, str) else leases.check_address("")
    for key, version in sorted(state.tables[subjects.WORKER_LEASE].items()):
        if isinstance(version.record, WorkerLease) and version.record.token and version.record.address == address:
            return key
    raise SteerError(f"address {address} is not allocated")


def _worker(text: Any) -> Key:
    return _key(subjects.WORKER_LEASE, "worker", text)


def _request_key(request: Request) -> Key:
    pool, identity = request.get("pool", "default"), request.get("id")
    if not isinstance(pool, str) or not isinstance(identity, str):
        raise SteerError("pool, id: texts are wanted")
    return _key(subjects.LEASE_REQUEST, "pool, id", f"{pool}/{identity}")


def _key(kind: Kind, what: str, text: Any) -> Key:
    if not isinstance(text, str):
        raise SteerError(f"{what}: {'/'.join(token.partition(':')[0] for token in kind.tokens)} is wanted")
    key = tuple(text.split("/"))
    try:
        kind.check(key)
    except InvalidSubject as error:
        raise SteerError(f"{what}: {error.reason}") from None
    return key


def _owner(request: Request) -> str:
    owner = request.get("owner")
    if not isinstance(owner, str) or not _OWNER.fullmatch(owner):
        raise SteerError(f"owner: {owner!r} is not letters, digits and . _ @ / -, 128 at most")
    return owner


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_WAIT_SECONDS:
        raise SteerError(f"wait_seconds: a number from 0 to {MAX_WAIT_SECONDS} is wanted")
    return float(value)


COMMANDS: Mapping[str, Command] = {
    "lease": Command(decide_lease, answer_lease),
    "renew": Command(decide_renew, answer_renew),
    "release": Command(decide_release, answer_release),
}
