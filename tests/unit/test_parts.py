"""Equal parts of records are one object, and what is read is what is read without that."""

import sys
from datetime import UTC, datetime

import pytest

from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.environment import Environment, ServiceSpec
from shared.model.release import Release
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec
from shared.runtime import parts
from shared.subjects import Key, Kind

AT = datetime(2030, 1, 1, tzinfo=UTC)
PLACE = ("n1", "web-abc")
ENV = ("shop", "web", "production")
RUN = RunSpec(
    image="registry/web@sha256:1",
    env={"A": "1", "config_hash": "not one", "run": '{"image":"no"},"config_hash":'},
    ports=(PortSpec(name="http", container_port=8080),),
    healthcheck=Healthcheck(),
)
SERVICE = ServiceSpec(resources=Resources(cpu_millis=100), run=RunSpec(command=("web",)))


def assignment(slot: int = 0) -> Assignment:
    return Assignment(
        workload=WorkloadRef(kind="environment", key="shop/web/production"),
        run=RUN,
        config_hash="0123456789abcdef",
        slot=slot,
        resources=Resources(cpu_millis=100, memory_mb=256),
        created_at=AT,
        reason='"run":{"image":"no"},"config_hash":',
    )


def test_the_replicas_of_a_release_share_what_they_run() -> None:
    first, second = (parts.read(subjects.ASSIGNMENT, PLACE, codec.encode(assignment(slot))) for slot in (0, 1))
    assert isinstance(first, Assignment) and isinstance(second, Assignment)
    assert first.run is second.run and first.resources is second.resources
    assert (first, second) == (assignment(0), assignment(1))


def test_an_environment_and_its_release_share_the_service() -> None:
    environment = parts.read(subjects.ENVIRONMENT, ENV, codec.encode(Environment(service=SERVICE)))
    release = parts.read(subjects.RELEASE, (*ENV, "1"), codec.encode(Release(image="web", service=SERVICE)))
    assert isinstance(environment, Environment) and isinstance(release, Release)
    assert environment.service is release.service
    assert environment.service == SERVICE


def test_what_is_read_and_what_is_copied_from_it_takes_less_than_half_of_an_ordinary_record() -> None:
    read = parts.read(subjects.ASSIGNMENT, PLACE, codec.encode(assignment()))
    assert isinstance(read, Assignment)
    for record in (read, read.replaced(slot=1)):
        assert sys.getsizeof(record.__dict__) < sys.getsizeof(assignment().__dict__) / 2
    assert (read, read.replaced(slot=1)) == (assignment(), assignment(1))


def test_replicas_with_the_same_port_share_it_and_no_others() -> None:
    ports: list[dict[str, int]] = [{"http": 20000}, {"http": 20000}, {"http": 1}, {"http": 20000, "admin": 1}, {}, {}]
    read = []
    for each in ports:
        instance = Instance(assignment_sequence=1, state="healthy", ports=each, since=AT)
        read.append(parts.read(subjects.INSTANCE, PLACE, codec.encode(instance)))
    found = [each.ports for each in read if isinstance(each, Instance)]
    assert found == ports
    assert found[0] is found[1] and found[4] is found[5]


@pytest.mark.parametrize(
    ("kind", "key", "body"),
    [
        (subjects.ENVIRONMENT, ENV, b"{}"),
        (subjects.ENVIRONMENT, ENV, b'{"service":{}}'),
        (subjects.ENVIRONMENT, ENV, b'{"service":{"run":{"command":["web"]}},"replicas":{"min":2,"max":3}}'),
        (subjects.ENVIRONMENT, ENV, b'{ "service": { "run": { "command": [ "web" ] } } }'),
        (subjects.RELEASE, (*ENV, "1"), b'{"image":"web","source":{},"service":{"max_concurrency":2}}'),
        (
            subjects.ASSIGNMENT,
            PLACE,
            b'{"workload":{"kind":"pool","key":"k","run":{"image":"not this"},"config_hash":""}, "run": {"image":"web"},'
            b' "config_hash":"","resources":{"cpu_millis":1},"volume_epoch":1,"created_at":"2030-01-01T00:00:00Z"}',
        ),
        (
            subjects.ASSIGNMENT,
            PLACE,
            b'{"workload":{"kind":"pool","key":"k"},"resources":{},"config_hash":"","created_at":"2030-01-01T00:00:00Z",'
            b'"run":{"env":{"A":"1"},"image":"web"}}',
        ),
    ],
)
def test_a_body_in_any_layout_reads_as_it_does_whole(kind: Kind, key: Key, body: bytes) -> None:
    assert parts.read(kind, key, body) == codec.decode(kind, key, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"replicas":{"min":5},"service":{"run":{"comand":["web"]}}}',
        b'{"service":{"scale_to_zero":true,"stateful":true}}',
        b'{"service":{"run":{}}',
        b'{"service":{}},"service":{}}',
    ],
)
def test_what_is_wrong_is_named_as_it_is_whole(body: bytes) -> None:
    with pytest.raises(InvalidRecord) as wanted:
        codec.decode(subjects.ENVIRONMENT, ENV, body)
    with pytest.raises(InvalidRecord) as found:
        parts.read(subjects.ENVIRONMENT, ENV, body)
    assert str(found.value) == str(wanted.value)


def test_a_record_is_written_as_it_was_read() -> None:
    body = codec.encode(assignment())
    assert codec.encode(parts.read(subjects.ASSIGNMENT, PLACE, body)) == body
