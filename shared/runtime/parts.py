"""Reading the bodies of the log: those of which there are many are read by their shape, and parts that many records have
in common are read once and held once.

The replicas of an environment run the same, and so do most versions of its release: their run spec is most of the bytes
of an assignment, and most of the memory that it holds. It is looked up among those that were read before.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import get_args

from pydantic import BaseModel, ValidationError

from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.model.assignment import Assignment, Instance, InstanceState, WorkloadRef
from shared.model.environment import Environment, ServiceSpec
from shared.model.release import DeployRequest, Release
from shared.model.run import RunSpec
from shared.runtime.shapes import (
    NUMBER,
    NUMBER_OR_NONE,
    TEXT,
    TIME,
    TIME_OR_NONE,
    Part,
    Row,
    Segment,
    Shape,
    Stretch,
    mapping,
    one_of,
)
from shared.runtime.thin import MOST, known, name_of, share, thin
from shared.subjects import Key, Kind

__all__ = ["read", "thin"]


def read(kind: Kind, key: Key, body: bytes) -> BaseModel:
    """As `codec.decode` of a key that was checked, with its errors; equal parts of records are one object."""
    if len(body) > codec.MAX_BODY_BYTES:
        return codec.decode(kind, key, body)
    shape = shape_of(kind)
    read = shape.read(body) if shape is not None else None
    if read is not None:
        return read
    try:
        record: BaseModel = codec.MODELS[kind].__pydantic_validator__.validate_json(body)
    except ValidationError:
        return codec.decode(kind, key, body)  # says what is wrong with it
    thin(record)
    if shape is not None:
        share(record)
    return record


def _part(model: type[BaseModel], body: bytes) -> BaseModel | None:
    parts, name = known[model], name_of(body)
    part = parts.get(name)
    if part is None:
        part = _new_part(model, body)
        if part is not None:
            if len(parts) >= MOST:
                parts.clear()
            parts[name] = part
    return part


def _new_part(model: type[BaseModel], body: bytes) -> BaseModel | None:
    shape = _part_shape(model)
    part = shape.read(body) if shape is not None else None
    if part is None:
        try:
            part = codec.validate(model, "", body)
        except InvalidRecord:
            return None
        thin(part)
        share(part)
    return part


def _service(model: type[BaseModel]) -> Part:
    return Part(model, "service", partial(_part, ServiceSpec))


def _run(model: type[BaseModel]) -> Part:
    return Part(model, "run", partial(_part, RunSpec))


def _assignment() -> Shape:
    return Shape(
        Assignment,
        Stretch(
            Part(Assignment, "workload", partial(_part, WorkloadRef)),
            Segment(Assignment, "release", "desired"),
            _run(Assignment),
            Segment(Assignment, "config_hash", "deployment"),
        ),
        Row(Assignment, slot=NUMBER, incarnation=NUMBER),
        Segment(Assignment, "resources", "volume_epoch"),
        Row(
            Assignment, created_at=TIME, drain_deadline=TIME_OR_NONE, attempt=NUMBER, not_before=TIME_OR_NONE,
            replaces=TEXT, reason=TEXT,
        ),
    )  # fmt: skip


def _instance() -> Shape:
    return Shape(
        Instance,
        Row(
            Instance, assignment_sequence=NUMBER, state=one_of(*get_args(InstanceState)), ports=mapping(dict[str, int]),
            exit_code=NUMBER_OR_NONE, message=TEXT, members=mapping(dict[str, str]), since=TIME,
            healthy_since=TIME_OR_NONE,
        ),
    )  # fmt: skip


def _environment() -> Shape:
    return Shape(
        Environment,
        Segment(Environment, "replicas", "idle_timeout_seconds", "drain_window_seconds"),
        _service(Environment),
    )


def _release() -> Shape:
    return Shape(
        Release,
        Row(Release, image=TEXT),
        Segment(Release, "build", "platforms"),
        _service(Release),
        Segment(Release, "source", remembered=False),
    )


def _deploy() -> Shape:
    return Shape(DeployRequest, Segment(DeployRequest, "version", "rollback", "canceled"))


def _service_spec() -> Shape:
    return Shape(
        ServiceSpec,
        Segment(ServiceSpec, "resources"),
        _run(ServiceSpec),
        Segment(ServiceSpec, "autoscale", "scale_to_zero", "max_concurrency", "stateful", "placement", "rate_limit"),
    )


def _run_spec() -> Shape:
    return Shape(
        RunSpec,
        Row(RunSpec, image=TEXT),
        Segment(RunSpec, "command"),
        Segment(RunSpec, "env", remembered=False),
        Segment(RunSpec, "env_from", "ports", "healthcheck", "stop_grace_seconds", "volumes"),
    )


_SHAPES: Mapping[Kind, Callable[[], Shape]] = {
    subjects.ASSIGNMENT: _assignment,
    subjects.INSTANCE: _instance,
    subjects.ENVIRONMENT: _environment,
    subjects.RELEASE: _release,
    subjects.DEPLOY: _deploy,
}
_PART_SHAPES: Mapping[type[BaseModel], Callable[[], Shape]] = {
    ServiceSpec: _service_spec,
    RunSpec: _run_spec,
}


@cache
def shape_of(kind: Kind) -> Shape | None:
    """How the bodies of a kind are read, where it has a shape. Made when it is asked for: a process reads few kinds."""
    make = _SHAPES.get(kind)
    return make() if make is not None else None


@cache
def _part_shape(model: type[BaseModel]) -> Shape | None:
    make = _PART_SHAPES.get(model)
    return make() if make is not None else None
