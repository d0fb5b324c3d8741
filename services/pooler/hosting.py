"""What the worker of a pool runs: the host of its runtime, told of its members, with their settings and their resources.

Who stays for a while keeps the row with which it runs, so that it reaches what it could reach.
"""

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from json.encoder import encode_basestring as _quoted
from operator import itemgetter
from typing import Any

import orjson

from services.pooler.access import PoolKey, Said
from services.pooler.world import State
from shared.codec import canonical
from shared.model.function import Function
from shared.model.pool import MEMBERS_VARIABLE, Pool, Runtime
from shared.model.run import DEFAULT_CPU_MILLIS, DEFAULT_MEMORY_MB, Resources, RunSpec

NAMESPACE_VARIABLE = "STEER_NAMESPACE"
_NO_RESOURCES = Resources()
_told = itemgetter("handler", "artifact", "env", "timeout_seconds")
MAX_CPU_MILLIS, MAX_MEMORY_MB = 1_000_000, 100_000_000
"""The most that a record of resources holds. No node has as much: who asks for more waits for one that has."""


def worker(
    state: State,
    key: PoolKey,
    before: Pool | None,
    runtime: Runtime | None,
    inside: Collection[str],
    staying: Collection[str],
) -> tuple[RunSpec, tuple[str, ...], Resources]:
    """What a worker with these members runs, and what it needs: the runtime's share and that of each member."""
    namespace = key.namespace
    candidates = [state.functions[namespace, name] for name in inside]
    _, _, _, rows, cpu_millis, memory_mb = zip(*candidates, strict=True)
    host = runtime.run if runtime is not None else before.run if before is not None else RunSpec()
    settings = host.env_from
    members = _json(rows)
    here = candidates
    if before is not None and staying:
        here = [candidate for candidate in candidates if candidate.pool == key]
        if members != before.run.env.get(MEMBERS_VARIABLE):
            present = rows_of(before, staying)
            members = _json([present[it] if it in staying else told for it, told in zip(inside, rows, strict=True)])
    if here:
        settings = (*settings, *settings_files(namespace, here[0].said))
    elif before is not None:
        settings = before.run.env_from
    env = {**host.env, NAMESPACE_VARIABLE: namespace, MEMBERS_VARIABLE: members}
    own = runtime.resources if runtime is not None else _NO_RESOURCES
    resources = _NO_RESOURCES.replaced(
        cpu_millis=min(sum(cpu_millis, own.cpu_millis or DEFAULT_CPU_MILLIS), MAX_CPU_MILLIS),
        memory_mb=min(sum(memory_mb, own.memory_mb or DEFAULT_MEMORY_MB), MAX_MEMORY_MB),
    )
    platforms = runtime.platforms if runtime is not None else before.platforms if before is not None else ()
    return host.replaced(env=env, env_from=settings), platforms, resources


def row(name: str, function: Function) -> str:
    """One function as its pool host is told of it: the JSON of a `PoolMember`. A name, or a handler, needs no escape."""
    handler, artifact, env, timeout_seconds = _told(function.__dict__)
    text = f'{{"name":"{name}","handler":"{handler}","artifact":{_quoted(artifact)}'
    if env:
        text += f',"env":{_text(env)}'
    if timeout_seconds:
        text += f',"timeout_seconds":{_text(timeout_seconds)}'
    return text + "}"


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _json(rows: Iterable[str]) -> str:
    return f"[{','.join(rows)}]"


def rows_of(pool: Pool, names: Collection[str]) -> dict[str, str]:
    """The rows of these members of a pool, as it runs."""
    rows = orjson.loads(pool.run.env.get(MEMBERS_VARIABLE, "[]"))
    return {each["name"]: orjson.dumps(each).decode() for each in rows if each["name"] in names}


def settings_files(namespace: str, said: Said) -> tuple[str, ...]:
    """The files of the node that settings and secrets are in. Members of one pool agree in them, order included."""
    *_, secrets, config = said
    if not secrets and not config:
        return ()
    return (*[f"{namespace}/config/{name}" for name in config], *[f"{namespace}/secrets/{name}" for name in secrets])


def signature(run: RunSpec, resources: Resources, host: Mapping[str, Any] | None = None) -> str:
    """64 hex digits over all that a worker runs. The first 16 are the `config_hash` of its assignments.

    `host` is what its runtime runs, as JSON has it, which differs in the environment alone: to write that anew for each
    pool takes three times as long.
    """
    told = host if host is not None else run.model_dump(mode="json")
    both = {"resources": resources.__dict__, "run": {**told, "env": run.env, "env_from": run.env_from}}
    return sha256(canonical(both)).hexdigest()
