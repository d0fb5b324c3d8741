"""Answers over the live state: read-only, on any instance. Each takes a JSON object and gives one.

* `state`: `{}` the whole in numbers; `{namespace}` every pool of it, with how full it is, and what waits.
* `explain`: `{function}` where it is and why, who is in its pool now; `{pool}` the decision in force about a pool.
* `place`: `{namespace, name, function, access?}` which pool this would be in, and whether it would be admitted (a dry
  run; nothing is kept).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from services.pooler.access import PoolKey, pool_of
from services.pooler.assign import Declared, assigner, unknown_runtime
from services.pooler.world import SERVICE, State
from shared import subjects
from shared.codec import validate
from shared.errors import InvalidSubject, SteerError
from shared.model.function import Function, FunctionAccess
from shared.model.pool import Runtime
from shared.model.service import DecisionRecord
from shared.service import Query
from shared.subjects import Key, Kind


def state_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    if "namespace" not in request:
        return {
            "sequence": state.sequence,
            "functions": len(state.functions),
            "pools": len(state.tables[subjects.POOL]),
            "queued": sum(map(len, state.queued.values())),
        }
    (namespace,) = _key(subjects.POOLING_POLICY, request["namespace"])
    return {
        "namespace": namespace,
        "policy": state.policy(namespace).model_dump(mode="json"),
        "pools": [_fill(state, pool, now) for pool in sorted(state.pools_in.get(namespace, ()))],
        "queued": [str(pool) for pool in state.queued.get(namespace, ())],
    }


def _fill(state: State, pool: PoolKey, now: datetime) -> Mapping[str, Any]:
    record = state.pool(pool)
    members = record.members if record is not None else ()
    until = state.changing_until.get(pool)
    return {
        "pool": str(pool),
        "members": {name: "ready" if state.ready(pool, name) else "not ready" for name in members},
        "limit": state.policy(pool.namespace).limit,
        "waiting": [name for name in state.groups.get(pool, ()) if name not in members],
        "changing": until is not None and until > now,
    }


def explain_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    about = "pool" if "pool" in request else "function"
    kind = subjects.POOL if about == "pool" else subjects.FUNCTION
    key = _key(kind, request.get(about))
    record = state.get(subjects.DECISION, (SERVICE, about, *key), DecisionRecord)
    decision = record.model_dump(mode="json") if record is not None else None
    if about == "pool":
        if record is None:
            raise SteerError(f"nothing has been decided about pool {'/'.join(key)}")
        return {"pool": "/".join(key), "decision": decision, "fill": _fill(state, PoolKey(*key), now)}
    wanted, placement = state.wanted(key), state.placement(key)
    if wanted is None:
        raise SteerError(f"function: {'/'.join(key)} does not exist")
    return {
        "function": "/".join(key),
        "declares": str(wanted),
        "placement": placement.model_dump(mode="json") if placement is not None else None,
        "pool": _fill(state, wanted, now),
        "decision": decision,
    }


def place_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    namespace, name = _key(subjects.FUNCTION, f"{request.get('namespace', '')}/{request.get('name', '')}")
    function = validate(Function, "function", orjson.dumps(request.get("function")))
    access = validate(FunctionAccess, "access", orjson.dumps(request.get("access", {})))
    pool = pool_of(namespace, name, function, access)
    record = state.pool(pool)
    declared = [Declared(each, pool) for each in state.groups.get(pool, ())]
    policy = state.policy(namespace)
    driver = assigner(policy.admission, record.members if record is not None else ())
    found = driver.assign(Declared(name, None if pool.solo else pool), pool, declared, policy.limit)
    missing = state.get(subjects.RUNTIME, (pool.runtime,), Runtime) is None
    reason = unknown_runtime(pool.runtime) if missing else found.reason
    return {"pool": str(pool), "pooled": found.pooled, "rejected": found.rejected or missing, "reason": reason}


def _key(kind: Kind, value: Any) -> Key:
    if not isinstance(value, str):
        raise SteerError(f"{kind.name}: {'/'.join(kind.tokens)} is wanted")
    key = tuple(value.split("/"))
    try:
        kind.check(key)
    except InvalidSubject as error:
        raise SteerError(f"{kind.name}: {error.reason}") from None
    return key


QUERIES: Mapping[str, Query] = {"state": state_query, "explain": explain_query, "place": place_query}
