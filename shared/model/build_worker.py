"""Build workers: `BuildWorker` and `BuildReport` (owned by the worker), and what the builder wants of them.

The builder owns `BuildOrder`, `WorkerLease`, `LeaseRequest` and `WorkerScale`.
"""

from typing import Annotated, Literal

from pydantic import Field

from shared.model.base import Record, Text, Time

WorkerPhase = Literal["pending", "running", "succeeded", "failed", "unknown"]
ReportState = Literal["running", "succeeded", "failed", "canceled"]


class WorkerConditions(Record):
    """What has to be true of a worker before it takes work; what is not said is not."""

    scheduled: bool = False
    initialized: bool = False
    containers_ready: bool = False
    ready: bool = False

    @property
    def all(self) -> bool:
        return self.scheduled and self.initialized and self.containers_ready and self.ready


class BuildWorker(Record):
    """`steer.build_worker.<pool>.<worker>`: one worker, written by itself or by whatever runs it, on change only.

    `created_at` tells one life of a worker from the next under the same name. One that takes no orders is lent to
    clients only, and sends no heartbeats.
    """

    ordinal: Annotated[int, Field(ge=0, le=1_000_000)]
    phase: WorkerPhase = "unknown"
    conditions: WorkerConditions = WorkerConditions()
    created_at: Time
    deleting: bool = False
    address: str = ""
    node: str = ""
    takes_orders: bool = True


class BuildOrder(Record):
    """`steer.build_order.<pool>.<worker>`: the build that the worker must run, or with `cancel` must stop.

    It is for the life of the worker that began at `worker_created_at`. When it is deleted, nothing is to run.
    """

    build: str
    attempt: int
    token: str
    worker_created_at: Time
    source_url: str
    push_reference: str
    type: str = "dockerfile"
    dockerfile: str = "Dockerfile"
    build_args: dict[str, str] = Field(default_factory=dict)
    platforms: tuple[str, ...] = ()
    cache_key: str = ""
    local_load: bool = False
    cancel: bool = False


class BuildReport(Record):
    """`steer.build_report.<pool>.<worker>.<build>`: what became of an order; `token` is that of its attempt.

    `build` is `project/app/id`. The worker deletes it when its order is gone.
    """

    build: str
    attempt: int
    token: str
    state: ReportState
    image_digest: str = ""
    platforms: tuple[str, ...] = ()
    error: Text = ""


class WorkerLease(Record):
    """`steer.worker_lease.<pool>.<worker>`: who has the worker; without a `token` nobody, until `idle_until`.

    `cache_key` is what the worker has built last. `last_owner` and `served_at_sequence` say which client had it last:
    that decides whose turn is next. An `idle_until` that is no time stays as it was written.
    """

    owner: str = ""
    token: str = ""
    leased_at: Time | None = None
    expires_at: Time | None = None
    address: str = ""
    build: str = ""
    request: str = ""
    worker_created_at: Time | None = None
    idle_until: Annotated[Time | str | None, Field(union_mode="left_to_right")] = None
    cache_key: str = ""
    last_owner: str = ""
    served_at_sequence: int = 0


class LeaseRequest(Record):
    """`steer.lease_request.<pool>.<id>`: somebody waits for a worker until `deadline`.

    It gives its place up at `expires_at`, which asking again moves on: whoever has gone away does not ask again.
    """

    owner: str
    requested_at: Time
    deadline: Time
    expires_at: Time
    place: int = 0


class WorkerScale(Record):
    """`steer.worker_scale.<pool>`: how many workers there should be, and which must be made anew in their place.

    Workers have the ordinals 0 to `replicas` - 1. Whatever runs them follows this: a StatefulSet, a unit file, a script.
    """

    replicas: Annotated[int, Field(ge=0)] = 0
    replace: tuple[str, ...] = ()
    reason: Text = ""
