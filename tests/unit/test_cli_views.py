"""What the steer command makes of records: one line each, counts, reasons, exit codes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from services.cli import fleet, names
from services.cli.exits import Exit, Failed, Refused, TimedOut, code_of
from services.cli.explain import rendered
from services.cli.health import main as health
from services.cli.health import url_of
from services.cli.output import age, table
from services.cli.reading import manifest
from services.cli.summary import summary
from services.cli.world import World
from shared import codec, subjects
from shared.errors import ConfigurationError, Conflict, InvalidSubject, SteerError, Unavailable
from shared.model.assignment import Assignment, Desired, Instance, WorkloadRef
from shared.model.deployment import ActiveRelease
from shared.model.environment import Environment, Replicas
from shared.model.run import Resources, RunSpec
from shared.service import Version
from tests.wire.examples import RECORDS

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ENV = ("shop", "web", "production")


def version(kind: subjects.Kind, key: subjects.Key, record: BaseModel | None, sequence: int = 1) -> Version:
    return Version(kind, key, sequence, record, NOW)


def assignment(slot: int, release: str = "1", desired: Desired = "run") -> Assignment:
    return Assignment(
        workload=WorkloadRef(kind="environment", key="/".join(ENV)),
        release=release,
        desired=desired,
        run=RunSpec(),
        config_hash="0",
        slot=slot,
        resources=Resources(),
        created_at=NOW,
    )


def world() -> World:
    """Three replicas are wanted; one is healthy, one starts, one of the release before drains."""
    view = World()
    view.take(version(subjects.ENVIRONMENT, ENV, Environment(replicas=Replicas(min=3))))
    view.take(version(subjects.ACTIVE, ENV, ActiveRelease(version="1")))
    for node, identity, record, state in (
        ("n1", "a", assignment(0), "healthy"),
        ("n2", "b", assignment(1), "starting"),
        ("n2", "c", assignment(0, release="0", desired="drain"), "healthy"),
    ):
        view.take(version(subjects.ASSIGNMENT, (node, identity), record))
        seen = Instance(assignment_sequence=1, state=state, since=NOW)
        view.take(version(subjects.INSTANCE, (node, identity), seen))
    return view


def test_the_replicas_of_the_release_that_serves_are_counted() -> None:
    assert fleet.count(world(), ENV) == fleet.Count(desired=3, running=2, healthy=1)
    assert fleet.count(World(), ENV) == fleet.Count(0, 0, 0)


def test_the_replicas_of_a_node_are_found() -> None:
    assert [replica.id for replica in fleet.replicas(world(), node="n2")] == ["b", "c"]


def test_a_deleted_record_is_not_there() -> None:
    view = world()
    view.take(version(subjects.ACTIVE, ENV, None, 2))
    assert view.version(subjects.ACTIVE, ENV) is None
    assert fleet.count(view, ENV).desired == 0


@pytest.mark.parametrize("kind", subjects.KINDS, ids=lambda kind: kind.name)
def test_a_record_has_a_line_that_says_something(kind: subjects.Kind) -> None:
    text = summary(RECORDS[kind][1])
    assert text and "\n" not in text


def test_a_deleted_record_has_a_line_too() -> None:
    assert summary(None) == "deleted"


@pytest.mark.parametrize("kind", subjects.KINDS, ids=lambda kind: kind.name)
def test_a_kind_is_found_by_its_name_in_any_spelling(kind: subjects.Kind) -> None:
    for spelling in (kind.name, kind.name.upper(), kind.name.replace("_", "-"), f"{kind.name}s"):
        assert names.kind_called(spelling) is kind


def test_a_record_is_shown_with_what_differs_from_the_default() -> None:
    shown = manifest(version(subjects.ENVIRONMENT, ENV, Environment(replicas=Replicas(min=2))))
    assert shown == {"kind": "Environment", "name": "shop/web/production", "replicas": {"min": 2}}


@pytest.mark.parametrize("kind", [k for k in subjects.KINDS if k.owner is subjects.Owner.USERS], ids=lambda k: k.name)
def test_what_is_shown_reads_as_the_same_record(kind: subjects.Kind) -> None:
    key, record = RECORDS[kind]
    body = manifest(version(kind, key, record))
    del body["kind"], body["name"]
    assert codec.decode(kind, key, codec.canonical(body)) == record


def test_reasons_are_shown_as_indented_lines() -> None:
    reasons = {
        "pending": {"wanted": 2, "rejected": {"capacity": 1, "labels": 2}, "examples": [{"node": "n1", "free": None}]},
        "none": {},
    }
    assert list(rendered(reasons)) == [
        "pending:",
        "  wanted: 2",
        "  rejected: capacity 1, labels 2",
        "  examples:",
        "    - node n1, free unlimited",
        "none: none",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_an_age_is_told_in_one_unit(seconds: int, text: str) -> None:
    assert age(NOW, NOW + timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Failed("a"), Exit.FAILED),
        (SteerError("a"), Exit.FAILED),
        (Refused("a"), Exit.INVALID),
        (InvalidSubject("a", "b"), Exit.INVALID),
        (ConfigurationError("a"), Exit.INVALID),
        (Unavailable("a"), Exit.UNAVAILABLE),
        (TimedOut("a"), Exit.TIMED_OUT),
        (Conflict("a"), Exit.CONFLICT),
    ],
)
def test_an_error_has_its_exit_code(error: SteerError, code: Exit) -> None:
    assert code_of(error) == code


def test_a_row_of_a_table_is_one_line_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    table(["NAME", ""], [("web", "why " * 200), ("catalog", "")])
    assert capsys.readouterr().out.splitlines() == ["NAME", "web      " + ("why " * 200).rstrip(), "catalog"]


def test_a_health_check_asks_the_process_of_its_environment_or_the_url_it_is_given() -> None:
    assert url_of([], {"STEER_METRICS_PORT": "9090"}) == "http://127.0.0.1:9090/healthz"
    assert url_of(["http://127.0.0.1:8222/healthz"], {}) == "http://127.0.0.1:8222/healthz"
    with pytest.raises(ValueError, match="STEER_METRICS_PORT"):
        url_of([], {})


def test_a_health_check_that_is_not_answered_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert health(["http://127.0.0.1:9/healthz"]) == 1
    assert "refused" in capsys.readouterr().err


def test_a_replica_that_has_not_answered_says_so() -> None:
    (replica,) = [each for each in fleet.replicas(world()) if each.id == "a"]
    assert replace(replica, instance=None).state == "not answered"
