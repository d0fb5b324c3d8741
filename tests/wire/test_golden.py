"""The wire format of every record, byte for byte."""

import json

import pytest
from pydantic import BaseModel

from shared import codec, subjects
from tests.wire.examples import GOLDEN, OTHERS, RECORDS, golden


def ids() -> list[str]:
    return list(golden())


def test_every_kind_has_an_example_and_a_model() -> None:
    assert set(RECORDS) == set(subjects.KINDS) == set(codec.MODELS)


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(golden())


@pytest.mark.parametrize("name", ids())
def test_a_record_is_written_byte_for_byte_as_before(name: str) -> None:
    assert codec.encode(golden()[name]) + b"\n" == (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("kind", subjects.KINDS, ids=lambda kind: kind.name)
def test_a_record_that_was_written_reads_as_an_equal_one(kind: subjects.Kind) -> None:
    key, record = RECORDS[kind]
    body = (GOLDEN / f"{kind.name}.json").read_bytes()
    assert codec.decode(kind, key, body) == record


@pytest.mark.parametrize("name", OTHERS)
def test_a_message_that_is_no_record_reads_as_an_equal_one(name: str) -> None:
    body = (GOLDEN / f"{name}.json").read_bytes()
    assert codec.validate(type(OTHERS[name]), name, body) == OTHERS[name]


def unset(value: BaseModel, path: str = "") -> list[str]:
    """Paths of the fields that an example leaves at their default."""
    missing = [f"{path}{field}" for field in type(value).model_fields if field not in value.model_fields_set]
    for field in type(value).model_fields:
        inner = getattr(value, field)
        for item in inner if isinstance(inner, tuple) else (inner,):
            if isinstance(item, BaseModel):
                missing += unset(item, f"{path}{field}.")
    return missing


@pytest.mark.parametrize("name", ids())
def test_an_example_sets_every_field(name: str) -> None:
    # A release and the run spec of a template have fields that exclude one another.
    assert [path for path in unset(golden()[name]) if not path.endswith("run.image")] == []


@pytest.mark.parametrize("name", ids())
def test_a_record_is_one_json_object_with_times_in_utc(name: str) -> None:
    body = codec.encode(golden()[name])
    assert isinstance(json.loads(body), dict)
    assert b"+00:00" not in body


def test_a_field_that_is_none_is_not_written() -> None:
    record = RECORDS[subjects.DOMAIN][1].model_copy(update={"middleware": None})
    assert b"middleware" not in codec.encode(record)
