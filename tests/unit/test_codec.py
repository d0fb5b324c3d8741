"""What is written of an assignment, part by part, is what is written of it as a whole."""

from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from shared import codec
from shared.model.assignment import Assignment, WorkloadRef
from shared.model.run import Healthcheck, PortSpec, Resources, RunSpec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIME = st.datetimes(timezones=st.just(UTC))
NUMBER = st.one_of(st.integers(0, 3), st.integers(0, 10**30))
RUN = st.builds(
    RunSpec,
    image=TEXT,
    env=st.dictionaries(st.sampled_from(["A", "B", "C"]), TEXT, max_size=2),
    ports=st.sampled_from([(), (PortSpec(name="http", container_port=80),)]),
    healthcheck=st.sampled_from([None, Healthcheck(), Healthcheck(interval_seconds=0.1)]),
)
ASSIGNMENT = st.builds(
    Assignment,
    workload=st.builds(WorkloadRef, kind=st.sampled_from(["environment", "pool"]), key=TEXT),
    run=RUN,
    config_hash=TEXT,
    slot=NUMBER,
    incarnation=NUMBER,
    resources=st.builds(Resources, cpu_millis=st.integers(0, 3)),
    created_at=TIME,
    drain_deadline=st.none() | TIME,
    not_before=st.none() | TIME,
    reason=TEXT,
)


@given(st.lists(ASSIGNMENT, max_size=3))
def test_assignments_are_written_as_any_record_is_whatever_was_written_before(records: list[Assignment]) -> None:
    for record in records:
        for each in (record, record.replaced(desired="stop"), record.replaced(run=RunSpec(), slot=7)):
            assert codec.encode(each) == each.model_dump_json(exclude_none=True).encode()
