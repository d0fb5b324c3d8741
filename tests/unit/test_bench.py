"""The simulated fleet answers as agents do; what is measured is written down with exactly its fields."""

from datetime import UTC, datetime
from pathlib import Path

import orjson

from bench.fleet import SimulatedFleet
from bench.harness import Figure, Unmeasured
from bench.raw import Raw
from bench.report import page, write
from shared import codec, subjects
from shared.model.assignment import Assignment, Desired, Instance, WorkloadRef
from shared.model.live import NodeSample
from shared.model.node import Fleet, Node
from shared.model.run import Resources, RunSpec
from shared.service import Version

AT = datetime(2030, 1, 1, tzinfo=UTC)
PLACE = ("n1", "web-abc")


def assignment(sequence: int, desired: Desired | None) -> Version:
    record = None
    if desired is not None:
        workload = WorkloadRef(kind="environment", key="shop/web/production")
        record = Assignment(
            workload=workload, desired=desired, run=RunSpec(), config_hash="", resources=Resources(), created_at=AT
        )
    return Version(subjects.ASSIGNMENT, PLACE, sequence, record, AT)


def said(messages: list[Raw]) -> list[tuple[str, int]]:
    instances = [codec.decode(subjects.INSTANCE, PLACE, each.body) for each in messages]
    return [(each.state, each.assignment_sequence) for each in instances if isinstance(each, Instance)]


def usage(fleet: SimulatedFleet) -> NodeSample:
    return NodeSample.model_validate_json(fleet.heartbeat("n1"))


def test_a_replica_runs_until_it_is_told_to_stop_and_its_instance_goes_with_its_assignment() -> None:
    fleet = SimulatedFleet()
    fleet.take(Version(subjects.NODE, ("n1",), 1, Node(), AT))
    fleet.take(assignment(2, "run"))
    assert said(list(fleet.answers(AT))) == [("healthy", 2)]
    assert list(usage(fleet).instances) == ["web-abc"]
    fleet.take(assignment(3, "drain"))
    assert not list(fleet.answers(AT))
    fleet.take(assignment(4, "stop"))
    assert said(list(fleet.answers(AT))) == [("stopped", 4)]
    assert not usage(fleet).instances
    fleet.take(assignment(5, None))
    (gone,) = fleet.answers(AT)
    assert gone == Raw(b"steer.instance.n1.web-abc", b"", b"Steer-Operation: delete\r\n")


def test_what_was_answered_before_is_not_answered_again() -> None:
    fleet = SimulatedFleet()
    instance = Instance(assignment_sequence=2, state="healthy", since=AT)
    fleet.take(Version(subjects.INSTANCE, PLACE, 3, instance, AT))
    fleet.take(assignment(2, "run"))
    assert not list(fleet.answers(AT))


def test_heartbeats_carry_the_interval_of_the_fleet() -> None:
    fleet = SimulatedFleet()
    fleet.take(Version(subjects.NODE, ("n1",), 1, Node(), AT))
    assert usage(fleet).interval_seconds == 2
    fleet.take(Version(subjects.FLEET, (), 2, Fleet(heartbeat_interval_seconds=10), AT))
    assert usage(fleet).interval_seconds == 10


def test_the_file_has_the_fields_that_programs_read(tmp_path: Path) -> None:
    figure = Figure("speed", 3.0, "/s", "10 nodes", 1.0, 3.0, "≥ 2/s", aim="≥ 4/s", met=True, aim_met=False)
    write(tmp_path / "results.json", [figure, Unmeasured("a trace", "there is no data")])
    measured, unmeasured = orjson.loads((tmp_path / "results.json").read_bytes())
    fields = ["figure", "value", "unit", "baseline", "ratio", "target", "met", "size", "at"]
    assert list(measured) == list(unmeasured) == fields
    assert measured["met"] is True
    assert (unmeasured["value"], unmeasured["met"]) == (None, None)
    assert unmeasured["size"] == "not measured: there is no data"


def test_the_page_has_a_line_for_each_row() -> None:
    figure = Figure("speed", 3.0, "/s", "10 nodes", 1.0, 3.0, "≥ 2/s", aim="≥ 4/s", met=True, aim_met=False)
    *_, head, _, measured, unmeasured = page([figure, Unmeasured("a trace", "there is no data")]).splitlines()
    assert measured == "| speed<br>10 nodes | 3 /s | 1 /s | 3× | ≥ 2/s ✓ | ≥ 4/s ✗ |"
    assert unmeasured.startswith("| a trace<br>not measured: there is no data |")
    assert {line.count("|") for line in (head, measured, unmeasured)} == {7}


def test_a_small_size_gives_no_verdict() -> None:
    figure = Figure("speed", 3.0, "/s", "10 nodes", met=True, aim_met=True).without_verdict()
    assert (figure.met, figure.aim_met) == (None, None)
