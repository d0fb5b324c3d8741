"""What a decoder refuses, and with which reason; who is strict and who is lenient."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import codec, subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.subjects import Kind
from tests.wire.examples import GOLDEN, RECORDS, ULID

USER_OWNED = [kind for kind in subjects.KINDS if kind.owner is subjects.Owner.USERS]
MACHINE_OWNED = [kind for kind in subjects.KINDS if kind.owner is not subjects.Owner.USERS]


def body(kind: Kind) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / f"{kind.name}.json").read_bytes())
    return loaded


@pytest.mark.parametrize("kind", USER_OWNED, ids=lambda kind: kind.name)
def test_a_users_record_with_an_unknown_field_is_refused(kind: Kind) -> None:
    text = json.dumps(body(kind) | {"replcas": 1}).encode()
    with pytest.raises(InvalidRecord) as caught:
        codec.decode(kind, RECORDS[kind][0], text)
    assert [problem.path for problem in caught.value.problems] == ["replcas"]


@pytest.mark.parametrize("kind", MACHINE_OWNED, ids=lambda kind: kind.name)
def test_a_machines_record_with_an_unknown_field_is_that_of_a_newer_peer(kind: Kind) -> None:
    key, record = RECORDS[kind]
    text = json.dumps(body(kind) | {"from_the_future": {"a": [1]}}).encode()
    assert codec.decode(kind, key, text) == record


@pytest.mark.parametrize("kind", USER_OWNED, ids=lambda kind: kind.name)
def test_every_user_owned_kind_is_kept_by_a_service(kind: Kind) -> None:
    assert kind.keeper in {"scheduler", "routes", "builder", "pooler"}


E_, R, D, DOM, NC = (
    subjects.ENVIRONMENT,
    subjects.RELEASE,
    subjects.DEPLOY,
    subjects.DOMAIN,
    subjects.NODE_CONTROL,
)
BUILD, POOL = subjects.BUILD, subjects.BUILD_POOL


def ports(*names: str) -> bytes:
    return json.dumps({"service": {"run": {"ports": [{"name": n, "container_port": 80} for n in names]}}}).encode()


def run(**fields: Any) -> bytes:
    return json.dumps({"service": {"run": fields}}).encode()


def domain(**fields: Any) -> bytes:
    return json.dumps({"hostname": "shop.example.com", "environment": "web/production"} | fields).encode()


MALFORMED: dict[str, tuple[Kind, bytes, str]] = {
    # name: kind, body, the path that the first problem names
    "an empty body": (E_, b"", ""),
    "not JSON": (E_, b"replicas: 1", ""),
    "cut off": (E_, b'{"replicas":{"min":1', ""),
    "not UTF-8": (E_, b'{"service":{"run":{"env":{"A":"\xff\xfe"}}}}', ""),
    "two values": (E_, b"{}{}", ""),
    "null": (E_, b"null", ""),
    "a list": (E_, b"[]", ""),
    "a number": (E_, b"7", ""),
    "a string": (E_, b'"environment"', ""),
    "NaN": (E_, b'{"idle_timeout_seconds":NaN}', "idle_timeout_seconds"),
    "infinity": (E_, b'{"idle_timeout_seconds":Infinity}', "idle_timeout_seconds"),
    "nesting without end": (E_, b'{"service":' * 10_000, ""),
    "ten megabytes": (E_, b'{"a":"' + b"x" * 10_000_000 + b'"}', ""),
    "a number as a word": (E_, b'{"replicas":{"min":"1"}}', "replicas.min"),
    "a fraction of a replica": (E_, b'{"replicas":{"min":1.5}}', "replicas.min"),
    "a boolean as a number": (E_, b'{"replicas":{"min":true}}', "replicas.min"),
    "a negative number of replicas": (E_, b'{"replicas":{"min":-1}}', "replicas.min"),
    "a million and one replicas": (E_, b'{"replicas":{"min":1000001}}', "replicas.min"),
    "max below min": (E_, b'{"replicas":{"min":3,"max":2}}', "replicas"),
    "an integer of 400 digits": (E_, b'{"replicas":{"min":' + b"9" * 400 + b"}}", "replicas.min"),
    "a negative duration": (E_, b'{"drain_window_seconds":-1}', "drain_window_seconds"),
    "an unknown field inside": (E_, b'{"service":{"resources":{"cpu":1}}}', "service.resources.cpu"),
    "an image in a template": (E_, run(image="a"), "service"),
    "scale to zero with volumes to keep": (E_, b'{"service":{"scale_to_zero":true,"stateful":true}}', "service"),
    "a command for a shell": (E_, run(command="python3 server.py"), "service.run.command"),
    "a name of a variable with =": (E_, run(env={"A=B": "1"}), "service.run.env.A=B.[key]"),
    "a number as a variable": (E_, run(env={"A": 1}), "service.run.env.A"),
    "two ports of one name": (E_, ports("http", "http"), "service.run"),
    "port 0": (E_, run(ports=[{"name": "http", "container_port": 0}]), "service.run.ports.0.container_port"),
    "port 65536": (E_, run(ports=[{"name": "http", "container_port": 65536}]), "service.run.ports.0.container_port"),
    "a protocol that is unknown": (
        E_,
        run(ports=[{"name": "http", "container_port": 80, "protocol": "quic"}]),
        "service.run.ports.0.protocol",
    ),
    "a health check of an unnamed port": (
        E_,
        run(ports=[{"name": "http", "container_port": 80}], healthcheck={"port": "admin"}),
        "service.run",
    ),
    "a health check by a command that is missing": (E_, run(healthcheck={"type": "exec"}), "service.run.healthcheck"),
    "a health check without a path": (E_, run(healthcheck={"path": "ready"}), "service.run.healthcheck.path"),
    "a health check every 0 s": (
        E_,
        run(healthcheck={"interval_seconds": 0}),
        "service.run.healthcheck.interval_seconds",
    ),
    "a mount path that is relative": (
        E_,
        run(volumes=[{"name": "a", "mount_path": "a"}]),
        "service.run.volumes.0.mount_path",
    ),
    "a release of nothing": (R, b"{}", ""),
    "an image of 1,025 characters": (R, json.dumps({"image": "a" * 1025}).encode(), "image"),
    "a platform with a space": (R, b'{"image":"a","platforms":["linux amd64"]}', "platforms.0"),
    "a build that is no ULID": (R, b'{"build":"latest"}', "build"),
    "a request without a version": (D, b"{}", "version"),
    "a version as a number": (D, b'{"version":7}', "version"),
    "version 0": (D, b'{"version":"0"}', "version"),
    "a rollback as a word": (D, b'{"version":"7","rollback":"yes"}', "rollback"),
    "a domain without a hostname": (DOM, b'{"environment":"web/production"}', "hostname"),
    "a hostname with a scheme": (DOM, domain(hostname="https://shop.example.com"), "hostname"),
    "a hostname in upper case": (DOM, domain(hostname="Shop.example.com"), "hostname"),
    "a wildcard in the middle": (DOM, domain(hostname="a.*.example.com"), "hostname"),
    "a hostname of 254 characters": (DOM, domain(hostname="a." * 126 + "ab"), "hostname"),
    "a prefix without a slash": (DOM, domain(path_prefix="api"), "path_prefix"),
    "a prefix that climbs": (DOM, domain(path_prefix="/a/../b"), "path_prefix"),
    "an environment of one name": (DOM, domain(environment="web"), "environment"),
    "a limit as a word": (DOM, domain(middleware={"max_body_bytes": "1 MB"}), "middleware.max_body_bytes"),
    "a cordon as a word": (NC, b'{"schedulable":"no"}', "schedulable"),
    "a node control with a typo": (NC, b'{"drian":true}', "drian"),
    "a build without an owner": (BUILD, b'{"source_digest":"d"}', "owner"),
    "a build whose owner is two words": (BUILD, b'{"owner":"a b","source_digest":"d"}', "owner"),
    "a source that leads elsewhere": (BUILD, b'{"owner":"a","source_digest":"../d"}', "source_digest"),
    "a build argument that is no name": (
        BUILD,
        b'{"owner":"a","source_digest":"d","build_args":{"1":""}}',
        "build_args.1.[key]",
    ),
    "a pool that takes nobody": (POOL, b'{"max_workers":0}', "max_workers"),
    "a pool of fewer than none": (POOL, b'{"min_workers":-1}', "min_workers"),
    "a pool whose most is below its least": (POOL, b'{"min_workers":3,"max_workers":2}', ""),
    "an owner limit of none": (POOL, b'{"owner_limit":0}', "owner_limit"),
    "a negative owner limit": (POOL, b'{"owner_limit":-1}', "owner_limit"),
    "no attempts": (POOL, b'{"max_attempts":0}', "max_attempts"),
    "a lease that is over at once": (POOL, b'{"lease_ttl_seconds":0}', "lease_ttl_seconds"),
    "a pool at port 0": (POOL, b'{"port":0}', "port"),
}


@pytest.mark.parametrize(("kind", "text", "path"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_refused_with_the_path_and_a_reason(kind: Kind, text: bytes, path: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        codec.decode(kind, RECORDS[kind][0], text)
    assert caught.value.problems[0].path == path
    assert all(problem.reason for problem in caught.value.problems)
    assert kind.subject(*RECORDS[kind][0]) in str(caught.value)


def test_every_mistake_is_named_not_only_the_first() -> None:
    text = b'{"replicas":{"min":-1},"drain_window_seconds":"long","servce":{}}'
    with pytest.raises(InvalidRecord) as caught:
        codec.decode(E_, RECORDS[E_][0], text)
    assert {problem.path for problem in caught.value.problems} == {"replicas.min", "drain_window_seconds", "servce"}


def test_a_good_body_below_a_malformed_subject_is_refused() -> None:
    with pytest.raises(InvalidSubject):
        codec.decode(E_, ("shop", "we.b", "production"), b"{}")


@given(st.sampled_from(subjects.KINDS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(kind: Kind, text: bytes) -> None:
    try:
        codec.decode(kind, RECORDS[kind][0], text)
    except InvalidRecord as error:
        assert error.problems


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(ULID),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_a_good_record_with_one_field_made_up_is_read_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(subjects.KINDS))
    good = body(kind)
    text = json.dumps(good | {data.draw(st.sampled_from(sorted(good))): data.draw(JSON)}).encode()
    try:
        record = codec.decode(kind, RECORDS[kind][0], text)
    except InvalidRecord as error:
        assert error.problems
    else:
        assert codec.decode(kind, RECORDS[kind][0], codec.encode(record)) == record
