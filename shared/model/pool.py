"""Pools of functions.

Owned by users, kept by the pooler: `PoolingPolicy`, how a namespace pools, and `Runtime`, what runs functions.
Owned by the pooler: `Pool`, one worker and the functions in it, and `PoolPlacement`, where one function is.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from shared.model.base import Name, Record, Text, Time, UserRecord
from shared.model.release import Platform
from shared.model.run import Resources, RunSpec

DEFAULT_LIMIT = 16
MAX_LIMIT = 32
MEMBERS_VARIABLE = "STEER_MEMBERS"


class PoolingPolicy(UserRecord):
    """`steer.pooling_policy.<namespace>`. Without one: `by_name` and 16.

    `limit` is how many functions one pool takes, and how many pools of the namespace change at a time. `by_name` admits
    the first by name; `stable` keeps whom it has admitted.
    """

    admission: Literal["by_name", "stable"] = "by_name"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT


class Runtime(UserRecord):
    """`steer.runtime.<runtime>`: the pool host of a runtime, what it needs without a function in it, and where it runs.

    Calls come in on its first HTTP port. The pooler adds `STEER_MEMBERS` to its environment.
    """

    run: RunSpec
    platforms: tuple[Platform, ...] = ()
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _is_a_pool_host(self) -> Self:
        if not any(port.protocol == "http" for port in self.run.ports):
            raise ValueError("run.ports: a pool host needs an http port, on which its functions are called")
        if MEMBERS_VARIABLE in self.run.env:
            raise ValueError(f"run.env: {MEMBERS_VARIABLE} is written by the pooler")
        if self.run.volumes:
            raise ValueError("run.volumes: a pool host has no volumes; it is started anew beside the old one")
        return self


class PoolMember(Record):
    """One function as its pool host is told of it, in the JSON list `STEER_MEMBERS`. 0 seconds = the host's default."""

    name: Name
    handler: str
    artifact: str
    env: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: float = 0


class Pool(Record):
    """`steer.pool.<namespace>.<runtime>.<worker>.<access>`: a worker and its functions. The scheduler places it.

    `run` and `resources` are whole. `signature` is the SHA-256 of both, and so of the list of members: another
    signature is another worker. `settles_by` is when a change counts as done even if the new worker has not said that
    its members are loaded.
    """

    members: tuple[str, ...] = ()
    waiting_count: Annotated[int, Field(ge=0)] = 0
    limit: int
    signature: Annotated[str, StringConstraints(max_length=64)]
    run: RunSpec
    platforms: tuple[str, ...] = ()
    resources: Resources
    desired: Annotated[int, Field(ge=0, le=1)]
    changed_at: Time
    settles_by: Time


class PoolPlacement(Record):
    """`steer.placement.<namespace>.<function>`: the pool of a function, or why it has none.

    `pool` is `runtime/worker/access`; `key` the same with the namespace in front where the function shares it (`pooled`).
    `rejected`: it does not run, for the `reason`. `moving_from`: the pool in which it goes on running until it is ready
    in `pool`, or until `moves_by`. `queued_for`: the pool that it goes to in its turn; until then it stays in `pool`,
    or nowhere if that is empty.
    """

    pooled: bool = False
    key: str = ""
    pool: str = ""
    rejected: bool = False
    reason: Text = ""
    moving_from: str = ""
    moves_by: Time | None = None
    queued_for: str = ""
