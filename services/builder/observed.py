"""What a decision has heard, put back to make it again.

An observation names whom nothing was heard of in time: `silent` and `unrenewed` the workers of a pool, and, where one
was lost, `heard_at` and `heard_token` its last heartbeat and `attended_at` since when anybody listened. All others were
heard: that is what most decisions go by, and it needs no words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from services.builder.leases import Heard
from services.builder.state import State, Target
from shared import subjects
from shared.model.build import BuildStatus
from shared.model.build_worker import WorkerLease
from shared.model.service import DecisionRecord
from shared.service import Version
from shared.subjects import Key

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OF_POOLS = frozenset({subjects.LEASE_REQUEST, subjects.WORKER_SCALE})


def recall(state: State, commit: Sequence[Version], now: datetime) -> None:
    """Put back what the decisions of a commit had observed, and leave only what they are about to be looked at."""
    _hear_all(state, now)
    state.dirty.clear()
    for version in commit:
        for target in _targets(state, version):
            state.mark(target)
        if version.kind is subjects.DECISION and isinstance(version.record, DecisionRecord):
            _, about, *key = version.key
            _recall(state, about, tuple(key), version.record.observation)


def _hear_all(state: State, now: datetime) -> None:
    """Everybody has just been heard, at the work that their lease is for."""
    state.attended_at = EPOCH
    state.heard.clear()
    for kind in (subjects.BUILD_WORKER, subjects.WORKER_LEASE):
        for worker in state.tables[kind]:
            lease = state.get(subjects.WORKER_LEASE, worker, WorkerLease)
            state.heard[worker] = Heard(lease.token if lease is not None else "", now)


def _recall(state: State, about: str, key: Key, observation: Mapping[str, Any]) -> None:
    if "attended_at" in observation:
        _lose(state, _worker(state, about, key), observation)
    for name in (*observation.get("silent", ()), *observation.get("unrenewed", ())):
        state.heard.pop((_pool(state, about, key), name), None)


def _lose(state: State, worker: Key, observation: Mapping[str, Any]) -> None:
    state.attended_at = _time(observation["attended_at"])
    state.heard.pop(worker, None)
    if "heard_at" in observation:
        state.heard[worker] = Heard(observation["heard_token"], _time(observation["heard_at"]))


def _worker(state: State, about: str, key: Key) -> Key:
    status = state.get(subjects.BUILD_STATUS, key, BuildStatus) if about == "build" else None
    return (status.pool, status.worker) if status is not None else key


def _pool(state: State, about: str, key: Key) -> str:
    return _worker(state, about, key)[0]


def _targets(state: State, version: Version) -> Iterable[Target]:
    """What was looked at when this was written: a build by itself, or the pool that gave it a worker."""
    kind, key = version.kind, version.key
    if kind is subjects.BUILD_STATUS:
        before, after = state.get(kind, key, BuildStatus), version.record
        given = before is not None and before.state == "queued" and isinstance(after, BuildStatus)
        if given and isinstance(after, BuildStatus) and after.state == "running":
            yield ("pool", after.pool)
        else:
            yield ("build", *key)
    elif kind is subjects.BUILD:
        yield ("build", *key)
    elif kind in _OF_POOLS or (kind is subjects.WORKER_LEASE and version.record is None):
        yield ("pool", key[0])
    elif kind is subjects.DECISION:
        yield from _target_of_decision(key)


def _target_of_decision(key: Key) -> Iterator[Target]:
    _, about, *rest = key
    if about in ("lease", "lease_request", "pool"):
        yield ("pool", rest[0])
    elif about == "app":
        yield ("app", *rest)


def _time(text: Any) -> datetime:
    return datetime.fromisoformat(text) if isinstance(text, str) else text
