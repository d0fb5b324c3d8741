"""`Function` and `FunctionAccess`, owned by users and CI, kept by the pooler: code that is called, and what it may reach.

A function shares a worker process with others only if all of them reach the same: its bindings, secrets and settings are
in its record; what it owns and was granted is in its access record, written by whoever decides about grants. Where there
is no access record, it owns nothing and was granted nothing.
"""

import json
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from shared.model.base import Name, UserRecord
from shared.model.run import EnvName, Resources

MAX_ENV_BYTES = 2048

Handler = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=256)]
Artifact = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=512)]
SettingValue = Annotated[str, StringConstraints(max_length=MAX_ENV_BYTES)]
Reference = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=512)]
"""What is owned or granted, as `kv/orders/open` or `group/readers`: compared, never looked into."""


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


class Pooling(UserRecord):
    """Functions that name the same worker may share one. None, or an empty text, = the function runs alone."""

    worker: Annotated[Name | None, BeforeValidator(_none_if_empty)] = None


class KvBinding(UserRecord):
    """A table of a key-value store, under the name that the code uses."""

    alias: Name
    store: Name
    table: Name


class BlobBinding(UserRecord):
    alias: Name
    bucket: Name
    prefix: Name


class CatalogBinding(UserRecord):
    alias: Name
    catalog: Name


class SqlBinding(UserRecord):
    """Written as `schema` in the record: that attribute's name is pydantic's."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True, validate_by_alias=True)

    alias: Name
    database: Name
    schema_name: Name = Field(alias="schema")


class Link(UserRecord):
    """Another function that this one may call. The timeout is no matter of access."""

    alias: Name
    target: Name
    timeout_seconds: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)] = 0


class FunctionScaling(UserRecord):
    """How many workers a function wants, and how long it stays without calls. 0 replicas at most = no limit.

    A pool has one worker, which stays while the pool has members. So any `max_replicas` is kept, and `min_replicas` up
    to 1; what is wanted beyond that is for a placement that runs several workers and puts idle ones to sleep: it is
    validated and kept, and `unmet` says that it is not done.
    """

    min_replicas: Annotated[int, Field(ge=0, le=15)] = 0
    max_replicas: Annotated[int, Field(ge=0, le=15)] = 0
    idle_timeout_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 0

    @model_validator(mode="after")
    def _max_is_not_below_min(self) -> Self:
        if 0 < self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas ({self.max_replicas}) is below min_replicas ({self.min_replicas})")
        return self

    @property
    def unmet(self) -> tuple[str, ...]:
        """What is wanted and not done, in sentences."""
        told = []
        if self.min_replicas > 1:
            told.append(f"scaling.min_replicas is {self.min_replicas}, and a pool has one worker")
        if self.idle_timeout_seconds:
            told.append(
                f"scaling.idle_timeout_seconds is {self.idle_timeout_seconds:g}, and the worker of a pool stays"
            )
        return tuple(told)


def _unique(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """A list without twins; what its items get wrong and who comes twice is said together."""
    items = value if isinstance(value, list | tuple) else ()
    names = [item.get("alias") if isinstance(item, dict) else getattr(item, "alias", item) for item in items]
    texts = [name for name in names if isinstance(name, str)]
    twice = sorted({name for name in texts if texts.count(name) > 1}) if len(set(texts)) < len(texts) else []
    mistakes = [_mistake((), value, f"named twice: {', '.join(twice)}")] if twice else []
    try:
        valid = handler(value)
    except ValidationError as error:
        found = [_mistake(each["loc"], each["input"], each["msg"]) for each in error.errors(include_url=False)]
        raise ValidationError.from_exception_data("Function", [*found, *mistakes]) from None
    if mistakes:
        raise ValidationError.from_exception_data("Function", mistakes)
    return valid


def _mistake(loc: tuple[int | str, ...], value: Any, reason: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("refused", "{reason}", {"reason": reason}), loc=loc, input=value)


def _small(env: dict[str, str]) -> dict[str, str]:
    size = len(json.dumps(env, ensure_ascii=False).encode())
    if size > MAX_ENV_BYTES:
        raise ValueError(f"{size} bytes as JSON; at most {MAX_ENV_BYTES}, so that a pool fits in a process")
    return env


Item = TypeVar("Item")
Unique = Annotated[tuple[Item, ...], Field(max_length=64, strict=False), WrapValidator(_unique)]
"""A list in which no alias, or no name, comes twice."""


class Function(UserRecord):
    """`steer.function.<namespace>.<name>`.

    `runtime` names the `Runtime` that runs it; `handler` is `module.function` in `artifact`, a path that its pool host
    understands. `env` is this function's alone; `secrets` and `config` name files on the node, read in this order.
    0 seconds of timeout leave it to the pool host.
    """

    runtime: Name
    handler: Handler
    artifact: Artifact
    pooling: Pooling = Pooling()
    kv: Unique[KvBinding] = ()
    blob: Unique[BlobBinding] = ()
    catalogs: Unique[CatalogBinding] = ()
    sql: Unique[SqlBinding] = ()
    links: Unique[Link] = ()
    secrets: Unique[Name] = ()
    config: Unique[Name] = ()
    env: Annotated[dict[EnvName, SettingValue], AfterValidator(_small)] = Field(default_factory=dict)
    scaling: FunctionScaling = FunctionScaling()
    resources: Resources = Resources()
    timeout_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0


class FunctionAccess(UserRecord):
    """`steer.access.<namespace>.<function>`: what the function owns, and the grants that it holds. Order is no matter."""

    owned: Annotated[tuple[Reference, ...], Field(max_length=1024)] = ()
    grants: Annotated[tuple[Reference, ...], Field(max_length=1024)] = ()
