"""What a function, its access record, a policy and a runtime may say; and that every mistake is named."""

import json
from typing import Any

import pytest

from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.model.function import MAX_ENV_BYTES, Function, FunctionScaling
from shared.model.pool import PoolingPolicy, Runtime
from shared.subjects import Kind

F, A, P, R = subjects.FUNCTION, subjects.ACCESS, subjects.POOLING_POLICY, subjects.RUNTIME
KEYS = {F: ("shop", "resize"), A: ("shop", "resize"), P: ("shop",), R: ("python",)}


def body(**fields: Any) -> dict[str, Any]:
    return {"runtime": "python", "handler": "m.handle", "artifact": "a"} | fields


def host(**fields: Any) -> dict[str, Any]:
    return {"image": "exec:host", "ports": [{"name": "http", "container_port": 80}]} | fields


def refused(kind: Kind, value: Any) -> list[str]:
    with pytest.raises(InvalidRecord) as caught:
        codec.decode(kind, KEYS[kind], json.dumps(value).encode())
    assert all(problem.reason for problem in caught.value.problems)
    return [problem.path for problem in caught.value.problems]


def kv(alias: Any, store: Any = "s", table: Any = "t") -> dict[str, Any]:
    return {"alias": alias, "store": store, "table": table}


MISTAKES: dict[str, tuple[Kind, Any, str]] = {
    "no runtime": (F, {"handler": "a", "artifact": "a"}, "runtime"),
    "a runtime that is no label": (F, body(runtime="Python"), "runtime"),
    "a label with a line feed at its end": (F, body(runtime="python\n"), "runtime"),
    "a label of 64 characters": (F, body(pooling={"worker": "a" * 64}), "pooling.worker"),
    "a worker with a slash": (F, body(pooling={"worker": "a/b"}), "pooling.worker"),
    "a worker like that of a function alone": (F, body(pooling={"worker": "_resize"}), "pooling.worker"),
    "a handler that begins with a digit": (F, body(handler="1a"), "handler"),
    "a handler with a hyphen": (F, body(handler="a-b"), "handler"),
    "a handler with a line feed at its end": (F, body(handler="a\n"), "handler"),
    "an empty handler": (F, body(handler=""), "handler"),
    "an artifact with a space": (F, body(artifact="a b"), "artifact"),
    "two kv bindings of one alias": (F, body(kv=[kv("a"), kv("a")]), "kv"),
    "two links of one alias": (F, body(links=[{"alias": "a", "target": "b"}] * 2), "links"),
    "a secret named twice": (F, body(secrets=["a", "a"]), "secrets"),
    "a store that is no label": (F, body(kv=[kv("a", "S")]), "kv.0.store"),
    "a table that is missing": (F, body(kv=[{"alias": "a", "store": "s"}]), "kv.0.table"),
    "a prefix with a slash": (F, body(blob=[{"alias": "a", "bucket": "b", "prefix": "c/d"}]), "blob.0.prefix"),
    "a catalog that is no label": (F, body(catalogs=[{"alias": "a", "catalog": "B"}]), "catalogs.0.catalog"),
    "a sql binding without a schema": (F, body(sql=[{"alias": "a", "database": "b"}]), "sql.0.schema"),
    "a link that may take six minutes": (
        F,
        body(links=[{"alias": "a", "target": "b", "timeout_seconds": 301}]),
        "links.0.timeout_seconds",
    ),
    "a config entry that is no label": (F, body(config=["A"]), "config.0"),
    "a timeout of more than an hour": (F, body(timeout_seconds=3601), "timeout_seconds"),
    "a negative timeout": (F, body(timeout_seconds=-1), "timeout_seconds"),
    "idle for more than a day": (F, body(scaling={"idle_timeout_seconds": 86_401}), "scaling.idle_timeout_seconds"),
    "sixteen replicas": (F, body(scaling={"max_replicas": 16}), "scaling.max_replicas"),
    "max below min": (F, body(scaling={"min_replicas": 3, "max_replicas": 2}), "scaling"),
    "65 bindings": (F, body(kv=[kv(f"a{number}") for number in range(65)]), "kv"),
    "settings that fill a process": (F, body(env={"A": "x" * (MAX_ENV_BYTES - 10), "B": "y" * 20}), "env"),
    "settings that fill a process once they are quoted": (F, body(env={"A": '"' * (MAX_ENV_BYTES // 2)}), "env"),
    "bindings as a mapping": (F, body(kv={"a": kv("a")}), "kv"),
    "a typo": (F, body(handlr="x"), "handlr"),
    "a list": (F, [], ""),
    "a grant with a space": (A, {"grants": ["a b"]}, "grants.0"),
    "an empty grant": (A, {"owned": [""]}, "owned.0"),
    "grants as a text": (A, {"grants": "group/a"}, "grants"),
    "a limit of 0": (P, {"limit": 0}, "limit"),
    "a limit of 33": (P, {"limit": 33}, "limit"),
    "an admission by luck": (P, {"admission": "random"}, "admission"),
    "a host without a port": (R, {"run": {"image": "exec:host"}}, ""),
    "a host without an http port": (
        R,
        {"run": host(ports=[{"name": "a", "container_port": 1, "protocol": "tcp"}])},
        "",
    ),
    "members that an operator sets": (R, {"run": host(env={"STEER_MEMBERS": "[]"})}, ""),
    "a host with volumes": (R, {"run": host(volumes=[{"name": "a", "mount_path": "/a"}])}, ""),
}


@pytest.mark.parametrize(("kind", "value", "path"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_with_its_path(kind: Kind, value: Any, path: str) -> None:
    assert refused(kind, value) == [path]


def test_every_mistake_is_named_at_once_also_within_one_list() -> None:
    value = body(
        runtime="Python",
        handler="9",
        kv=[kv("a"), kv("a", "S"), kv("b", table=3)],
        sql=[{"alias": "x", "database": "d", "schema": "s"}] * 2,
        scaling={"min_replicas": 4, "max_replicas": 2},
        timeout_seconds=-1,
        typo=1,
    )
    assert sorted(refused(F, value)) == sorted(
        ["runtime", "handler", "kv", "kv.1.store", "kv.2.table", "sql", "scaling", "timeout_seconds", "typo"]
    )


def test_an_alias_is_unique_in_its_list_only() -> None:
    value = body(kv=[kv("a")], links=[{"alias": "a", "target": "b"}], secrets=["a"], config=["a"])
    assert isinstance(codec.decode(F, KEYS[F], json.dumps(value).encode()), Function)


def test_a_label_of_63_characters_and_the_outer_bounds_are_taken() -> None:
    value = body(
        pooling={"worker": "a" * 63},
        timeout_seconds=3600,
        scaling={"min_replicas": 15, "max_replicas": 0, "idle_timeout_seconds": 86_400},
    )
    assert isinstance(codec.decode(F, KEYS[F], json.dumps(value).encode()), Function)


@pytest.mark.parametrize(
    ("scaling", "told"),
    [
        ({}, []),
        ({"min_replicas": 1, "max_replicas": 1}, []),
        ({"max_replicas": 15}, []),
        ({"min_replicas": 2}, ["scaling.min_replicas is 2, and a pool has one worker"]),
        ({"idle_timeout_seconds": 300.0}, ["scaling.idle_timeout_seconds is 300, and the worker of a pool stays"]),
    ],
)
def test_what_one_worker_that_stays_does_not_give_is_told(scaling: dict[str, Any], told: list[str]) -> None:
    assert list(FunctionScaling(**scaling).unmet) == told


def test_an_empty_worker_is_none() -> None:
    found = codec.decode(F, KEYS[F], json.dumps(body(pooling={"worker": ""})).encode())
    assert isinstance(found, Function) and found == codec.decode(F, KEYS[F], json.dumps(body()).encode())


def test_a_policy_that_says_nothing_is_by_name_and_sixteen() -> None:
    policy = codec.decode(P, KEYS[P], b"{}")
    assert policy == PoolingPolicy(admission="by_name", limit=16)


def test_a_runtime_is_a_host_with_an_http_port() -> None:
    assert isinstance(codec.decode(R, KEYS[R], json.dumps({"run": host()}).encode()), Runtime)
