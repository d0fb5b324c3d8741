"""Answers over the state, read-only: `steer.api.routes.<verb>`.

state    {}                        what is in force, and what waits
host     {hostname}                its routes as published, who claims it, and which notices are raised
explain  {environment: p/a/e}      for each replica, whether it is an endpoint, and why not
         {function: namespace/f}   the same for each worker of the pools that have it
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from services.routes import functions, hosts, versions
from services.routes.decide import work
from services.routes.serving import obstacle
from services.routes.world import Env, State
from shared import codec, subjects
from shared.errors import InvalidRecord, Problem
from shared.service import Query
from shared.subjects import Key


def overview(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    return {
        "version": versions.number(state),
        "digest": state.manifest.digest if state.manifest else "",
        "covers": state.manifest.covers if state.manifest else 0,
        "received": state.covers,
        "closed": not versions.unclosed(state),
        "records": dict(sorted(state.counts.items())),
        "waiting": sum(1 for _ in work(state)),
        "notices": sum(len(raised) for raised in state.notices.values()),
    }


def host(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """Raises `InvalidRecord` where no hostname is named."""
    hostname = _text(request, "hostname").lower()
    item = (subjects.ROUTE_HOST.name, subjects.host_key(hostname))
    written = state.written.get(item)
    return {
        "hostname": hostname,
        "routes": orjson.loads(written.body)["routes"] if written else [],
        "claims": [
            {"by": claim.subject, "environment": "/".join(claim.env), "path_prefix": claim.prefix}
            for claim in hosts.claims(state, item)
        ],
        "notices": sorted(notice.message for notice in state.notices.get(item, {}).values()),
    }


def explain(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """Raises `InvalidRecord` where neither a function nor an environment is named."""
    if "function" in request:
        return _explain_function(state, tuple(_text(request, "function").split("/")))
    env: Env = tuple(_text(request, "environment").split("/"))
    if len(env) != 3:
        raise _refused("environment", "write it as project/app/environment")
    active, routed = state.actives.get(env), state.routed.get(env)
    return {
        "environment": "/".join(env),
        "exists": state.exists(env),
        "release": active.record.version if active else "",
        "deployment": active.record.deployment if active else "",
        "implicit_host": state.implicit_host(env),
        "hosts": sorted({state.domains[domain].hostname for domain in state.domains_of.get(env, ())}),
        "routed": codec.encode(routed).decode() if routed else "",
        "replicas": [
            {"node": place[0], "assignment": place[1], "obstacle": obstacle(state, env, place)}
            for place in sorted(state.replicas_of.get(env, ()))
        ],
    }


def _explain_function(state: State, key: Key) -> Mapping[str, Any]:
    if len(key) != 2:
        raise _refused("function", "write it as namespace/function")
    return {
        "function": "/".join(key),
        "placed": state.placed.get(key, ""),
        "pools": [
            {
                "pool": "/".join(pool[1:]),
                "workers": [
                    {"node": place[0], "assignment": place[1], "obstacle": functions.obstacle(state, place, key[1])}
                    for place in sorted(state.replicas_of.get(pool, ()))
                ],
            }
            for pool in sorted(state.pools_of.get(key, ()))
        ],
    }


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise _refused(name, "is missing, or no text")
    return value


def _refused(name: str, reason: str) -> InvalidRecord:
    return InvalidRecord("request", (Problem(name, reason),))


QUERIES: Mapping[str, Query] = {"state": overview, "host": host, "explain": explain}
