"""A cluster whose routes are followed: every host leads to an environment of its own with five healthy replicas."""

from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import BaseModel

from bench.raw import Raw, raw
from shared import codec, subjects
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.deployment import ActiveRelease
from shared.model.domain import Domain
from shared.model.environment import Environment, ServiceSpec
from shared.model.node import Node
from shared.model.release import Release
from shared.model.run import PortSpec, Resources, RunSpec
from shared.subjects import Key, Kind

REPLICAS = 5
NODES = 500
FIRST_PORT = 20_000
AT = datetime(2030, 1, 1, tzinfo=UTC)

_PORTS = (PortSpec(name="http", container_port=8080),)
_RELEASE = Release(image="exec:shop", service=ServiceSpec(run=RunSpec(ports=_PORTS)))


def hostname(host: int) -> str:
    return f"app-{host}.example.com"


def instance(port: int = FIRST_PORT) -> Instance:
    """A replica that says that it is healthy on this port."""
    return Instance(assignment_sequence=1, state="healthy", ports={"http": port}, since=AT)


def address(host: int, replica: int, port: int) -> str:
    """Where the replica is reached."""
    return f"{_node_address(_node(host, replica))}:{port}"


def log_of(hosts: int) -> Iterator[Raw]:
    """What users, agents and the scheduler have written of so many hosts, before any route is published."""
    for number in range(NODES):
        yield _message(subjects.NODE, (f"n{number}",), Node(address=_node_address(number)))
    for host in range(hosts):
        env = ("shop", f"app-{host}", "production")
        yield _message(subjects.ENVIRONMENT, env, Environment())
        yield _message(subjects.RELEASE, (*env, "1"), _RELEASE)
        yield _message(subjects.ACTIVE, env, ActiveRelease(version="1", deployment="d1"))
        domain = Domain(hostname=hostname(host), environment=f"app-{host}/production")
        yield _message(subjects.DOMAIN, ("shop", f"d-{host}"), domain)
        for replica in range(REPLICAS):
            yield _message(subjects.ASSIGNMENT, place(host, replica), _assignment(env))
            yield _message(subjects.INSTANCE, place(host, replica), instance())


def _assignment(env: Key) -> Assignment:
    return Assignment(
        workload=WorkloadRef(kind="environment", key="/".join(env)),
        release="1",
        deployment="d1",
        desired="run",
        run=RunSpec(image="exec:shop", ports=_PORTS),
        config_hash="0" * 16,
        resources=Resources(),
        created_at=AT,
    )


def place(host: int, replica: int) -> Key:
    """Node and assignment of a replica."""
    return f"n{_node(host, replica)}", f"app-{host}-{replica:010}"


def _node(host: int, replica: int) -> int:
    return (host * REPLICAS + replica) % NODES


def _node_address(number: int) -> str:
    return f"10.0.{number // 250}.{number % 250}"


def _message(kind: Kind, key: Key, record: BaseModel) -> Raw:
    return raw(kind.subject(*key), codec.encode(record))
