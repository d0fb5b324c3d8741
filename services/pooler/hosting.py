"""What the worker of a pool runs: the host of its runtime, told of its members, with their settings and their resources.

Who stays for a while keeps the row with which it runs, so that it reaches what it could reach.
"""

from collections.abc import Collection
from hashlib import sha256
from typing import Any

import orjson

from services.pooler.access import PoolKey
from services.pooler.world import State
from shared.codec import canonical
from shared.model.function import Function
from shared.model.pool import MEMBERS_VARIABLE, Pool, Runtime
from shared.model.run import Resources, RunSpec

NAMESPACE_VARIABLE = "STEER_NAMESPACE"


def worker(
    state: State,
    key: PoolKey,
    before: Pool | None,
    runtime: Runtime | None,
    inside: Collection[str],
    staying: Collection[str],
) -> tuple[RunSpec, tuple[str, ...], Resources]:
    """What a worker with these members runs, and what it needs: the runtime's share and that of each member."""
    rows = rows_of(before) if before is not None and staying else {}
    functions = {name: state.function((key.namespace, name)) for name in inside}
    rows |= {name: row(name, it) for name, it in functions.items() if it is not None and name not in staying}
    host = runtime.run if runtime is not None else before.run if before is not None else RunSpec()
    settings = host.env_from
    first = next((functions[name] for name in inside if name not in staying), None)
    if first is not None:
        settings = (*settings, *settings_files(key.namespace, first))
    elif before is not None:
        settings = before.run.env_from
    members = orjson.dumps([rows[name] for name in inside]).decode()
    env = host.env | {NAMESPACE_VARIABLE: key.namespace, MEMBERS_VARIABLE: members}
    resources = (runtime.resources if runtime is not None else Resources()).effective()
    each = [function.resources for function in functions.values() if function is not None]
    cpu_millis, memory_mb = sum([item.cpu_millis for item in each]), sum([item.memory_mb for item in each])
    if cpu_millis or memory_mb:
        resources = Resources(cpu_millis=resources.cpu_millis + cpu_millis, memory_mb=resources.memory_mb + memory_mb)
    platforms = runtime.platforms if runtime is not None else before.platforms if before is not None else ()
    return host.model_copy(update={"env": env, "env_from": settings}), platforms, resources


def row(name: str, function: Function) -> dict[str, Any]:
    """One function as its pool host is told of it, see `PoolMember`."""
    told: dict[str, Any] = {"name": name, "handler": function.handler, "artifact": function.artifact}
    if function.env:
        told["env"] = dict(sorted(function.env.items()))
    if function.timeout_seconds:
        told["timeout_seconds"] = function.timeout_seconds
    return told


def rows_of(pool: Pool) -> dict[str, dict[str, Any]]:
    """The rows of a pool as it runs."""
    return {each["name"]: each for each in orjson.loads(pool.run.env.get(MEMBERS_VARIABLE, "[]"))}


def settings_files(namespace: str, function: Function) -> tuple[str, ...]:
    """The files of the node that its settings and secrets are in. Members of one pool agree in them, order included."""
    return (
        *(f"{namespace}/config/{name}" for name in function.config),
        *(f"{namespace}/secrets/{name}" for name in function.secrets),
    )


def signature(run: RunSpec, resources: Resources) -> str:
    """64 hex digits over all that a worker runs. The first 16 are the `config_hash` of its assignments."""
    both = {"run": run.model_dump(mode="json"), "resources": resources.model_dump(mode="json")}
    return sha256(canonical(both)).hexdigest()
