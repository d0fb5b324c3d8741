"""Bytes to records and back.

`encode` writes a record as JSON with its fields in the order of the model, without those that are None: equal records
are equal bytes. `decode` validates; what it refuses, it refuses with every field and reason (`InvalidRecord`).
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shared import subjects
from shared.errors import InvalidRecord, Problem
from shared.model.activation import Activation
from shared.model.assignment import Assignment, Instance
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import BuildOrder, BuildReport, BuildWorker, LeaseRequest, WorkerLease, WorkerScale
from shared.model.deployment import ActiveRelease, Deployment, Scale
from shared.model.domain import Domain
from shared.model.environment import Environment
from shared.model.function import Function, FunctionAccess
from shared.model.image_sweep import ImageSweep, ImageSwept
from shared.model.node import Fleet, Node, NodeControl, NodeStatus
from shared.model.pool import Pool, PoolingPolicy, PoolPlacement, Runtime
from shared.model.release import DeployRequest, Release
from shared.model.route import FunctionRoute, HostRoutes, InternalService, L4Route, Routed, RouteManifest
from shared.model.run import Resources, RunSpec
from shared.model.service import DecisionRecord, Notice, Term
from shared.model.snapshot import SnapshotOrder, SnapshotPrune, SnapshotReport
from shared.model.volume import Volume, VolumeStatus
from shared.subjects import Key, Kind

MODELS: Mapping[Kind, type[BaseModel]] = {
    subjects.ENVIRONMENT: Environment,
    subjects.RELEASE: Release,
    subjects.DEPLOY: DeployRequest,
    subjects.VOLUME: Volume,
    subjects.SNAPSHOT_ORDER: SnapshotOrder,
    subjects.SNAPSHOT_PRUNE: SnapshotPrune,
    subjects.SNAPSHOT_REPORT: SnapshotReport,
    subjects.IMAGE_SWEEP: ImageSweep,
    subjects.IMAGE_SWEPT: ImageSwept,
    subjects.VOLUME_STATUS: VolumeStatus,
    subjects.DOMAIN: Domain,
    subjects.NODE_CONTROL: NodeControl,
    subjects.BUILD: BuildRequest,
    subjects.BUILD_POOL: BuildPool,
    subjects.RUNTIME: Runtime,
    subjects.POOLING_POLICY: PoolingPolicy,
    subjects.ACCESS: FunctionAccess,
    subjects.FUNCTION: Function,
    subjects.NODE: Node,
    subjects.INSTANCE: Instance,
    subjects.ACTIVATION: Activation,
    subjects.BUILD_WORKER: BuildWorker,
    subjects.BUILD_REPORT: BuildReport,
    subjects.FLEET: Fleet,
    subjects.NODE_STATUS: NodeStatus,
    subjects.ASSIGNMENT: Assignment,
    subjects.DEPLOYMENT: Deployment,
    subjects.ACTIVE: ActiveRelease,
    subjects.SCALE: Scale,
    subjects.BUILD_STATUS: BuildStatus,
    subjects.BUILD_ORDER: BuildOrder,
    subjects.WORKER_LEASE: WorkerLease,
    subjects.LEASE_REQUEST: LeaseRequest,
    subjects.WORKER_SCALE: WorkerScale,
    subjects.PLACEMENT: PoolPlacement,
    subjects.POOL: Pool,
    subjects.ROUTE_HOST: HostRoutes,
    subjects.ROUTE_L4: L4Route,
    subjects.ROUTE_INTERNAL: InternalService,
    subjects.ROUTE_FUNCTION: FunctionRoute,
    subjects.ROUTE_MANIFEST: RouteManifest,
    subjects.ROUTED_ENVIRONMENT: Routed,
    subjects.ROUTED_POOL: Routed,
    subjects.TERM: Term,
    subjects.DECISION: DecisionRecord,
    subjects.NOTICE: Notice,
}

Model = TypeVar("Model", bound=BaseModel)

MAX_SHOWN = 80
"""Characters of a text that is refused."""

MAX_BODY_BYTES = 900 * 1024
"""A larger body is refused: payload and headers must stay below the server's `max_payload` of 1 MiB."""


class _Last:
    """The JSON of the part that was written last: the replicas of a set are written one after the other, and have most of
    what they are in common."""

    def __init__(self) -> None:
        self._last: tuple[BaseModel | None, orjson.Fragment] = None, orjson.Fragment(b"")

    def of(self, part: BaseModel) -> orjson.Fragment:
        last, written = self._last
        if part is not last:
            written = orjson.Fragment(_write(part))
            self._last = part, written
        return written


_WORKLOAD, _RUN, _RESOURCES = _Last(), _Last(), _Last()


def encode(record: BaseModel) -> bytes:
    """The JSON of a record, canonical: equal records give equal bytes."""
    return _write_assignment(record) if isinstance(record, Assignment) else _write(record)


def _write(record: BaseModel) -> bytes:
    return record.__pydantic_serializer__.to_json(record, exclude_none=True)


def _write_assignment(record: Assignment) -> bytes:
    """As `_write`, at a quarter of its cost."""
    values = {name: value for name, value in record.__dict__.items() if value is not None}
    values["workload"] = _WORKLOAD.of(record.workload)
    values["run"] = _RUN.of(record.run)
    values["resources"] = _RESOURCES.of(record.resources)
    try:
        return orjson.dumps(values, option=orjson.OPT_UTC_Z)
    except orjson.JSONEncodeError:  # a number beyond 64 bits, say
        return _write(record)


def decode(kind: Kind, key: Key, body: bytes) -> BaseModel:
    """The record in a body. Raises `InvalidRecord` with every problem, or `InvalidSubject` for a key without its form."""
    kind.check(key)
    if len(body) > MAX_BODY_BYTES:
        reason = f"{len(body)} bytes; at most {MAX_BODY_BYTES} are read"
        raise InvalidRecord(kind.subject(*key), (Problem("", reason),))
    if not body:
        reason = "empty; to delete, send the header Steer-Operation: delete"
        raise InvalidRecord(kind.subject(*key), (Problem("", reason),))
    try:
        return MODELS[kind].__pydantic_validator__.validate_json(body)  # type: ignore[no-any-return]
    except ValidationError as error:
        raise InvalidRecord(kind.subject(*key), problems(error)) from None


def validate(model: type[Model], subject: str, body: bytes) -> Model:
    """Validate a body against one model. Raises `InvalidRecord`."""
    try:
        return cast(Model, model.__pydantic_validator__.validate_json(body))
    except ValidationError as error:
        raise InvalidRecord(subject, problems(error)) from None


def problems(error: ValidationError) -> tuple[Problem, ...]:
    """Every problem of a validation, in the order of the fields."""
    return tuple(
        Problem(".".join(str(part) for part in item["loc"]), _reason(item)) for item in error.errors(include_url=False)
    )


def _reason(item: ErrorDetails) -> str:
    """In words of ours where those of the validator speak of its own matters, or hide what was written."""
    match item["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "missing"
        case "string_pattern_mismatch":
            text = item["input"]
            shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
            return f"{shown!r} does not match {item['ctx']['pattern']}"
        case _:
            return item["msg"].removeprefix("Value error, ")


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, for digests."""
    return orjson.dumps(_plain(value) if isinstance(value, BaseModel) else value, option=orjson.OPT_SORT_KEYS)


def _plain(record: BaseModel) -> Any:
    """`model_dump(mode="json")`, without the way there."""
    return record.__pydantic_serializer__.to_python(record, mode="json")


def config_hash(run: RunSpec, resources: Resources) -> str:
    """16 hex digits of the SHA-256 of the canonical run spec and resources: equal if and only if they run the same."""
    both = {"run": _plain(run), "resources": _plain(resources)}
    return sha256(canonical(both)).hexdigest()[:16]


def digest(record: BaseModel) -> str:
    """64 hex digits of the SHA-256 of a record as it is written."""
    return sha256(encode(record)).hexdigest()
