"""Answers over the live state: read-only, on any instance. Each takes a JSON object and gives one.

* `place`: what would happen to so many replicas of this service now, and why (a dry run; nothing is reserved).
* `state`: an environment with its replicas, a node with what runs there, or the whole in numbers.
* `explain`: the decision in force about a thing, with what it waits for.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from services.scheduler.environments import serving_spec
from services.scheduler.placement import place
from services.scheduler.replicas import Replica, replicas_of
from services.scheduler.scaling import effective_replicas
from services.scheduler.state import SERVICE, State
from services.scheduler.workload import template
from shared import subjects
from shared.codec import validate
from shared.errors import InvalidSubject, SteerError
from shared.model.deployment import ActiveRelease
from shared.model.environment import Environment, ServiceSpec
from shared.model.node import Node, NodeStatus
from shared.model.release import Release
from shared.model.service import DecisionRecord
from shared.subjects import Key, Kind

MAX_COUNT = 10_000


def place_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """`{environment, count?, service?, platforms?}` → `{nodes, shortfall, reasons}`.

    Without `service`, the template of the environment. `count` is 1 unless said.
    """
    key = _key(subjects.ENVIRONMENT, request.get("environment"))
    count = request.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_COUNT:
        raise SteerError(f"count: a number from 0 to {MAX_COUNT}")
    release = _hypothetical_release(state, key, request)
    placed = place(state.cluster, template(key, "", release, release.image, release.platforms).request, count)
    return {"nodes": list(placed.nodes), "shortfall": placed.shortfall, "reasons": dict(placed.reasons)}


def _hypothetical_release(state: State, key: Key, request: Mapping[str, Any]) -> Release:
    if "service" in request:
        service = validate(ServiceSpec, "service", orjson.dumps(request["service"]))
    else:
        environment = state.get(subjects.ENVIRONMENT, key, Environment)
        if environment is None:
            raise SteerError(f"environment: {'/'.join(key)} does not exist, and no service is given")
        service = environment.service
    body = {"image": "dry-run", "platforms": request.get("platforms", [])}
    return validate(Release, "request", orjson.dumps(body)).model_copy(update={"service": service})


def state_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """`{environment}`, `{node}` or `{}` → what is known of it."""
    if "environment" in request:
        return _environment_state(state, _key(subjects.ENVIRONMENT, request["environment"]))
    if "node" in request:
        return _node_state(state, _key(subjects.NODE, request["node"]))
    nodes = Counter(state.unavailable(key[0]) or "available" for key in state.tables[subjects.NODE])
    return {
        "sequence": state.sequence,
        "nodes": dict(sorted(nodes.items())),
        "environments": sum(version.record is not None for version in state.tables[subjects.ENVIRONMENT].values()),
        "assignments": len(state.tables[subjects.ASSIGNMENT]),
        "waiting": len(state.waiting),
    }


def _environment_state(state: State, key: Key) -> Mapping[str, Any]:
    environment = state.get(subjects.ENVIRONMENT, key, Environment)
    if environment is None:
        raise SteerError(f"environment: {'/'.join(key)} does not exist")
    active = state.get(subjects.ACTIVE, key, ActiveRelease) or ActiveRelease()
    service = serving_spec(state, key, environment, active)
    return {
        "environment": "/".join(key),
        "release": active.version,
        "wanted": effective_replicas(state, key, environment, service) if active.version else 0,
        "replicas": [_replica(item) for item in replicas_of(state, ("environment", *key))],
        "open_deployments": sorted(state.open_of.get(key, ())),
    }


def _replica(item: Replica) -> dict[str, Any]:
    return {
        "id": item.id,
        "node": item.node,
        "release": item.assignment.release,
        "desired": item.assignment.desired,
        "state": "lost" if item.lost else item.instance.state if item.instance is not None else "unreported",
        "reason": item.assignment.reason,
    }


def _node_state(state: State, key: Key) -> Mapping[str, Any]:
    node = state.get(subjects.NODE, key, Node)
    if node is None:
        raise SteerError(f"node: {key[0]} does not exist")
    status = state.get(subjects.NODE_STATUS, key, NodeStatus)
    heard = state.heard.get(key[0])
    return {
        "node": key[0],
        "status": status.model_dump(mode="json") if status is not None else None,
        "unavailable": state.unavailable(key[0]),
        "heard_at": heard.isoformat() if heard is not None else None,
        "assignments": sorted(name for _, name in state.replicas_on.get(key[0], ())),
    }


def explain_query(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """`{about, key}`, as in `{"about": "environment", "key": "shop/web/production"}` → the decision in force."""
    about, text = request.get("about", "environment"), request.get("key", "")
    if not isinstance(about, str) or not isinstance(text, str):
        raise SteerError("about, key: texts are wanted")
    record = state.get(subjects.DECISION, (SERVICE, about, *text.split("/")), DecisionRecord)
    if record is None:
        raise SteerError(f"nothing has been decided about {about} {text}")
    return record.model_dump(mode="json")


def _key(kind: Kind, value: Any) -> Key:
    if not isinstance(value, str):
        raise SteerError(f"{kind.name}: {'/'.join(kind.tokens)} is wanted")
    key = tuple(value.split("/"))
    try:
        kind.check(key)
    except InvalidSubject as error:
        raise SteerError(f"{kind.name}: {error.reason}") from None
    return key
