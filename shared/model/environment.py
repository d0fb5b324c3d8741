"""`Environment`, owned by users and CI, kept by the scheduler: how an application runs in one place.

`replicas`, `idle_timeout_seconds` and `drain_window_seconds` rule at once; `service` is the template that the next
release freezes.
"""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from shared.model.base import Count, Seconds, UserRecord
from shared.model.run import Resources, RunSpec

Label = Annotated[str, StringConstraints(max_length=253)]
Percent = Annotated[int, Field(ge=0, le=1000)]


class Replicas(UserRecord):
    """How many replicas. Without `max`, as many as `min`."""

    min: Count = 1
    max: Count | None = None

    @model_validator(mode="after")
    def _max_is_not_below_min(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        return self

    @property
    def most(self) -> int:
        return self.min if self.max is None else self.max


class Autoscale(UserRecord):
    """Targets of the resource autoscaler; 0 = unused."""

    target_cpu_percent: Percent = 0
    target_memory_percent: Percent = 0
    target_rps_per_replica: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0


class Placement(UserRecord):
    """Where replicas may go: exact node labels, all of them; and whether two may share a node."""

    constraints: dict[Label, Label] = Field(default_factory=dict)
    distinct_nodes: bool = False


class RateLimit(UserRecord):
    """Per client address at one proxy. `burst` 0 = as `requests_per_second`; 0 requests = no limit."""

    requests_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    burst: Count = 0


class ServiceSpec(UserRecord):
    """What a release freezes: resources per replica, the run spec without its image, scaling and placement."""

    resources: Resources = Resources()
    run: RunSpec = RunSpec()
    autoscale: Autoscale | None = None
    scale_to_zero: bool = False
    max_concurrency: Count = 0
    stateful: bool = False
    placement: Placement = Placement()
    rate_limit: RateLimit | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.stateful and self.scale_to_zero:
            raise ValueError("scale_to_zero does not go with stateful")
        if self.run.volumes and not self.stateful:
            raise ValueError("run.volumes needs stateful: a volume has one replica at a time")
        if self.run.image:
            raise ValueError("run.image belongs to the release, not to the template")
        return self


class Environment(UserRecord):
    """`steer.environment.<project>.<app>.<environment>`."""

    replicas: Replicas = Replicas()
    idle_timeout_seconds: Seconds = 0
    drain_window_seconds: Seconds = 600
    service: ServiceSpec = ServiceSpec()
