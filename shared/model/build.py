"""Builds: `BuildRequest` and `BuildPool` (owned by users and CI, kept by the builder), `BuildStatus` (the builder's)."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from shared.model.base import Name, Port, Record, Text, Time, UserRecord
from shared.model.release import Platform
from shared.model.run import EnvName, EnvValue

BuildState = Literal["queued", "running", "succeeded", "failed", "canceled"]
TERMINAL_STATES: frozenset[BuildState] = frozenset({"succeeded", "failed", "canceled"})

OWNER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@/-]{0,127}$"
BuildOwner = Annotated[str, StringConstraints(pattern=OWNER_PATTERN)]
"""Whose turn it is: a team, a person, `<namespace>/<name>`."""

Digest = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9:._-]{0,255}$")]
"""What names a source archive; it is appended to the base of the URL, so it leads nowhere else."""

PositiveSeconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]


class BuildRequest(UserRecord):
    """`steer.build.<project>.<app>.<id>`: make an image of a source archive. `canceled` takes it back.

    A worker that built the same `cache_key` last is preferred, and never waited for.
    """

    owner: BuildOwner
    source_digest: Digest
    type: Name = "dockerfile"
    dockerfile: Text = "Dockerfile"
    build_args: dict[EnvName, EnvValue] = Field(default_factory=dict)
    platforms: tuple[Platform, ...] = ()
    cache_key: Annotated[str, StringConstraints(max_length=256)] = ""
    pool: Name = "default"
    canceled: bool = False


class BuildPool(UserRecord):
    """`steer.build_pool.<pool>`: how many workers, for how long, and how many at once for one owner (None = any).

    `max_idle_seconds` is how long a free worker is kept, and a new one may be pending; `ready_timeout_seconds` how long
    one that runs may be unready. A lease that is not renewed ends after `lease_ttl_seconds`. A worker's address is
    `tcp://<worker>.<service_name>:<port>` where it does not name its own.
    """

    min_workers: Annotated[int, Field(ge=0, le=10_000)] = 0
    max_workers: Annotated[int, Field(ge=1, le=10_000)] = 10
    max_idle_seconds: PositiveSeconds = 600
    lease_ttl_seconds: Annotated[float, Field(ge=1, le=86_400)] = 30
    owner_limit: Annotated[int, Field(ge=1, le=10_000)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    ready_timeout_seconds: PositiveSeconds = 180
    queue_timeout_seconds: PositiveSeconds = 86_400
    build_timeout_seconds: PositiveSeconds = 3600
    service_name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]{0,253}$")] = ""
    port: Port = 1234

    @model_validator(mode="after")
    def _max_is_not_below_min(self) -> Self:
        if self.max_workers < self.min_workers:
            raise ValueError(f"max_workers {self.max_workers} is below min_workers {self.min_workers}")
        return self


class BuildStatus(Record):
    """`steer.build_status.<project>.<app>.<build>`: one build on its way, and what came of it.

    `token` belongs to one attempt: only reports that carry it count. `stopping` is the state that a running build takes
    when its worker has confirmed that it stopped, or at the `deadline`. `deadline` ends the state it stands in.
    `place` orders the queue, `served_at_sequence` says when its last attempt was given out, and `lost_on` by which
    workers one was lost.
    """

    state: BuildState
    pool: str
    owner: str
    attempt: Annotated[int, Field(ge=0)] = 0
    token: str = ""
    worker: str = ""
    image: str = ""
    platforms: tuple[str, ...] = ()
    error: Text = ""
    queued_at: Time
    started_at: Time | None = None
    finished_at: Time | None = None
    deadline: Time | None = None
    stopping: Literal["", "canceled", "failed"] = ""
    cache_key: str = ""
    place: int = 0
    served_at_sequence: int = 0
    lost_on: tuple[str, ...] = ()

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL_STATES
