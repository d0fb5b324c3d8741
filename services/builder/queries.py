"""Answers over the live state: read-only, on any instance. Each takes a JSON object and gives one.

* `queue`: who waits in a pool, in the order of their turns, and what each waits for.
* `pool`: the workers of a pool with their states and leases, and how many there should be.
* `explain`: the decision in force about a thing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from services.builder.dispatch import turns_of
from services.builder.pools import observe_pool
from services.builder.state import SERVICE, State
from services.builder.workers import COMING, Observation, WorkerState
from shared import subjects
from shared.errors import SteerError
from shared.model.build import BuildPool, BuildStatus
from shared.model.build_worker import LeaseRequest, WorkerScale
from shared.model.service import DecisionRecord

MOST_LISTED = 1000


def queue_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """`{pool?, owner?, limit?}` → `{pool, waiting, entries}`; the position counts from 1, over all owners.

    Those whose owner is at the limit come last: their turn begins when a build of the owner ends.
    """
    name = _text(request, "pool", "default")
    owner = _text(request, "owner", "")
    limit = request.get("limit", 100)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_LISTED:
        raise SteerError(f"limit: a number from 1 to {MOST_LISTED} is wanted")
    observations = observe_pool(state, name, now)
    entries: list[dict[str, Any]] = []
    seen: set[tuple[str, ...]] = set()
    position = 0
    for turn_owner, item in turns_of(state, name).all():
        position += 1
        seen.add(item)
        if len(entries) < limit and (not owner or owner == turn_owner):
            entries.append(_entry(state, item, turn_owner, position, waits_for(state, name, observations, position)))
    for turn_owner, tickets in sorted(state.indexes.line(name).by_owner.items()):
        for _, _, item in tickets:
            if item not in seen:
                position += 1
                if len(entries) < limit and (not owner or owner == turn_owner):
                    entries.append(_entry(state, item, turn_owner, position, _at_the_limit(state, name, turn_owner)))
    return {"pool": name, "waiting": position, "entries": entries}


def waits_for(state: State, name: str, observations: list[Observation], position: int) -> str:
    """Why whoever has this position has no worker yet."""
    pool = state.get(subjects.BUILD_POOL, (name,), BuildPool)
    if pool is None:
        return f"pool {name}, which does not exist"
    leased = sum(each.state is WorkerState.LEASED for each in observations)
    coming = [each for each in observations if each.state in COMING]
    if position <= len(coming):
        return f"a worker that is coming up: {coming[position - 1]}"
    if len(observations) < pool.max_workers:
        return f"a new worker: {leased} of at most {pool.max_workers} are leased"
    before = f", {position - 1} before it" if position > 1 else ""
    return f"one of {pool.max_workers} workers to be free{before}"


def _at_the_limit(state: State, name: str, owner: str) -> str:
    held = state.indexes.held.get(name, {}).get(owner, 0)
    return f"an earlier one of {owner} to end: {held} hold a worker, the limit is {state.pool(name).owner_limit}"


def _entry(state: State, item: tuple[str, ...], owner: str, position: int, waits: str) -> dict[str, Any]:
    what, *key = item
    if what == "build":
        status = state.get(subjects.BUILD_STATUS, tuple(key), BuildStatus)
        since, attempt = (status.queued_at, status.attempt) if status is not None else (None, 0)
    else:
        request = state.get(subjects.LEASE_REQUEST, tuple(key), LeaseRequest)
        since, attempt = (request.requested_at if request is not None else None), 0
    entry = {"position": position, "owner": owner, "waits_for": waits, "since": since}
    return entry | ({"build": "/".join(key), "attempts": attempt} if what == "build" else {"request": key[1]})


def pool_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """`{pool?}` → its workers, their states, leases and what they build, and the wanted number."""
    name = _text(request, "pool", "default")
    if (name,) not in state.tables[subjects.BUILD_POOL] and name not in state.indexes.workers_of:
        raise SteerError(f"pool: {name} does not exist")
    scale = state.get(subjects.WORKER_SCALE, (name,), WorkerScale) or WorkerScale()
    return {
        "pool": name,
        "wanted": scale.replicas,
        "replace": list(scale.replace),
        "waiting": len(state.indexes.line(name)),
        "workers": [_worker(state, name, each) for each in observe_pool(state, name, now)],
    }


def _worker(state: State, name: str, each: Observation) -> dict[str, Any]:
    lease = each.facts.lease
    heard = state.heard.get((name, each.name))
    return {
        "worker": each.name,
        "ordinal": each.ordinal,
        "state": str(each.state),
        "owner": lease.owner,
        "build": lease.build,
        "idle_until": lease.idle_until if not lease.token else None,
        "heard_at": heard.at if heard is not None else None,
    }


def explain_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """`{about, key}`, as in `{"about": "build", "key": "shop/web/<id>"}` → the decision in force."""
    about, text = _text(request, "about", "build"), _text(request, "key", "")
    record = state.get(subjects.DECISION, (SERVICE, about, *text.split("/")), DecisionRecord)
    if record is None:
        raise SteerError(f"nothing has been decided about {about} {text}")
    return record.model_dump(mode="json")


def _text(request: Mapping[str, Any], name: str, default: str) -> str:
    value = request.get(name, default)
    if not isinstance(value, str):
        raise SteerError(f"{name}: a text is wanted")
    return value
