"""Whatever a body says, reading it by its shape gives what reading it whole gives: the same record, or the same error."""

import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.deployment import ActiveRelease
from shared.model.environment import Autoscale, Environment, Replicas, ServiceSpec
from shared.model.release import DeployRequest, Release
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec, VolumeMount
from shared.runtime import parts, shapes
from shared.subjects import Key, Kind

ENV: Key = ("shop", "web", "production")
PLACE: Key = ("n1", "web-abc")
KEYS: dict[Kind, Key] = {
    subjects.ASSIGNMENT: PLACE,
    subjects.INSTANCE: PLACE,
    subjects.ENVIRONMENT: ENV,
    subjects.RELEASE: (*ENV, "1"),
    subjects.DEPLOY: (*ENV, "0" * 26),
    subjects.ACTIVE: ENV,
}
TEXTS = st.text(max_size=12) | st.sampled_from(['"run":{"image":"no"},', ',"slot":1', "é→\\", "x" * 1025, "\x00"])
NUMBERS = st.integers(0, 10) | st.integers(0, 10**17)
TIMES = st.integers(0, 2**51).map(lambda micros: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros))
MAPPINGS = st.dictionaries(st.sampled_from(["A", "slot", "run", "_b"]), TEXTS, max_size=3)
RUNS = st.builds(
    RunSpec,
    image=TEXTS.filter(lambda text: len(text) <= 1024),
    command=st.lists(TEXTS, max_size=2).map(tuple),
    env=MAPPINGS,
    ports=st.sampled_from([(), (PortSpec(name="http", container_port=80),)]),
    healthcheck=st.none() | st.just(Healthcheck(path="/")),
)
SERVICES = st.builds(
    ServiceSpec,
    resources=st.builds(Resources, cpu_millis=st.integers(0, 5)),
    run=RUNS.map(lambda run: run.replaced(image="")),
    autoscale=st.none() | st.just(Autoscale(target_cpu_percent=50)),
    stateful=st.booleans(),
)
RECORDS: dict[Kind, st.SearchStrategy[BaseModel]] = {
    subjects.ASSIGNMENT: st.builds(
        Assignment,
        workload=st.builds(WorkloadRef, kind=st.just("environment"), key=TEXTS),
        release=TEXTS,
        run=RUNS,
        config_hash=TEXTS,
        deployment=TEXTS,
        slot=NUMBERS,
        incarnation=NUMBERS,
        resources=st.builds(Resources, memory_mb=st.integers(0, 5)),
        created_at=TIMES,
        drain_deadline=st.none() | TIMES,
        not_before=st.none() | TIMES,
        replaces=TEXTS,
        reason=TEXTS,
    ),
    subjects.INSTANCE: st.builds(
        Instance,
        assignment_sequence=st.integers(-1, 2**70),
        state=st.sampled_from(["healthy", "failed"]),
        ports=st.dictionaries(TEXTS, st.integers(), max_size=2),
        exit_code=st.none() | st.integers(),
        message=TEXTS,
        members=MAPPINGS,
        since=TIMES,
        healthy_since=st.none() | TIMES,
    ),
    subjects.ENVIRONMENT: st.builds(Environment, replicas=st.builds(Replicas, min=st.integers(0, 3)), service=SERVICES),
    subjects.RELEASE: st.builds(
        Release,
        image=st.sampled_from(["web", "é"]),
        build=st.none() | st.just("0" * 26),
        platforms=st.sampled_from([(), ("linux/amd64",)]),
        service=SERVICES,
        source=MAPPINGS,
    ),
    subjects.DEPLOY: st.builds(DeployRequest, version=st.sampled_from(["1", "22"]), canceled=st.booleans()),
    subjects.ACTIVE: st.builds(ActiveRelease, version=TEXTS, image=TEXTS, route_generation=NUMBERS),
}
ASSIGNMENT = Assignment(
    workload=WorkloadRef(kind="pool", key="k"),
    run=RunSpec(),
    config_hash="",
    resources=Resources(),
    created_at=datetime(2030, 1, 1, tzinfo=UTC),
)
SPLICES = st.sampled_from(
    [b"", b"}", b"{", b",", b'"', b"\\", b"0", b"-1", b"null", b"true", b"\xff", b',"slot":1', b" "]
)
Body = tuple[Kind, bytes]


def read(kind: Kind, body: bytes) -> tuple[BaseModel | None, str]:
    try:
        return parts.read(kind, KEYS[kind], body), ""
    except InvalidRecord as error:
        return None, str(error)


def whole(kind: Kind, body: bytes) -> tuple[BaseModel | None, str]:
    try:
        return codec.decode(kind, KEYS[kind], body), ""
    except InvalidRecord as error:
        return None, str(error)


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    kind = draw(st.sampled_from(list(RECORDS)))
    return kind, codec.encode(draw(RECORDS[kind]))


@st.composite
def spoilt(draw: st.DrawFn) -> Body:
    """A body in which something was cut out, put in or moved."""
    kind, body = draw(bodies())
    pieces = [body]
    for _ in range(draw(st.integers(1, 3))):
        at, length = draw(st.integers(0, len(body))), draw(st.integers(0, 30))
        piece = draw(SPLICES | st.just(body[at : at + length]))
        cut = draw(st.integers(0, len(body)))
        body = body[:cut] + piece + body[cut + draw(st.sampled_from([0, 1, length])) :]
        pieces.append(body)
    return kind, body


@given(bodies())
@settings(max_examples=60)
def test_a_record_reads_as_it_was_written(body: Body) -> None:
    kind, written = body
    (found, _), (wanted, _) = read(kind, written), whole(kind, written)
    assert found == wanted and found is not None
    assert codec.encode(found) == written
    assert sys.getsizeof(found.__dict__) < sys.getsizeof(dict(found.__dict__))


@given(spoilt())
@settings(max_examples=150)
def test_a_spoilt_body_reads_as_it_does_whole(body: Body) -> None:
    assert read(*body) == whole(*body)


@pytest.mark.parametrize(
    "record",
    [
        Instance(assignment_sequence=1, state="healthy", since=datetime(2030, 1, 1, tzinfo=UTC)),
        Release(image="web", service=ServiceSpec(autoscale=Autoscale()), source={"commit": "abc"}),
        Environment(service=ServiceSpec(run=RunSpec(volumes=(VolumeMount(name="a", mount_path="/a"),)), stateful=True)),
    ],
)
def test_what_codec_writes_has_the_shape(record: BaseModel) -> None:
    kind = next(kind for kind, model in codec.MODELS.items() if model is type(record))
    shape = parts.shape_of(kind)
    assert shape is not None and shape.read(codec.encode(record)) == record


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (subjects.RELEASE, codec.encode(Release(image="web")).replace(b'"image":"web"', b'"image":""')),
        (subjects.ENVIRONMENT, codec.encode(Environment()).replace(b"false", b"true")),
        (subjects.ENVIRONMENT, codec.encode(Environment()).replace(b'"image":""', b'"image":"web"')),
        (subjects.DEPLOY, b'{"version":"01","rollback":false,"canceled":false}'),
        (subjects.DEPLOY, b'{"version":"1","rollback":0,"canceled":false}'),
        (subjects.ASSIGNMENT, codec.encode(ASSIGNMENT).replace(b"workload", b"warkload")),
        (subjects.INSTANCE, b'{"assignment_sequence":1,"state":"gone","since":"2030-01-01T00:00:00Z"}'),
        (subjects.INSTANCE, b'{"assignment_sequence":1,"state":"healthy","since":"2030-02-30T00:00:00Z"}'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_as_it_is_whole(kind: Kind, body: bytes) -> None:
    wanted = whole(kind, body)
    assert wanted[0] is None
    assert read(kind, body) == wanted


def test_a_shape_has_to_know_every_field() -> None:
    with pytest.raises(AssertionError, match="ActiveRelease"):
        shapes.Shape(ActiveRelease, shapes.Row(ActiveRelease, version=shapes.TEXT))


def test_a_body_of_many_beginnings_and_no_end_is_read_in_little_time() -> None:
    body = b'{"workload":' + b'{"kind":"pool","key":"k"},"release":"","run":{},"config_hash":' * 10_000
    assert read(subjects.ASSIGNMENT, body) == whole(subjects.ASSIGNMENT, body)
