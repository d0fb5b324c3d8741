"""`Deployment`, `ActiveRelease` and `Scale`, owned by the scheduler: how a release comes to serve, and how wide."""

from typing import Annotated, Literal

from pydantic import Field

from shared.model.base import Record, Time

Phase = Literal[
    "pending",
    "building",
    "placing",
    "starting",
    "healthchecking",
    "promoting",
    "stopping_old",
    "draining_old",
    "succeeded",
    "failed",
    "canceled",
    "superseded",
]
TERMINAL_PHASES: frozenset[Phase] = frozenset({"succeeded", "failed", "canceled", "superseded"})


class Transition(Record):
    """One change of phase, with the reason where there is one."""

    phase: Phase
    at: Time
    reason: str = ""


class Deployment(Record):
    """`steer.deployment.<env>.<id>`: one deploy request on its way. `deadline` ends the phase it stands in.

    `adopts` names the deployment whose warm replicas a rollback takes over; without it the replicas carry this
    deployment's own id. `previous_deployment` is the one whose replicas served until the promotion.
    """

    phase: Phase
    version: str
    previous: str = ""
    previous_deployment: str = ""
    adopts: str = ""
    rollback: bool = False
    requested_at_sequence: int
    image: str = ""
    platforms: tuple[str, ...] = ()
    release_digest: str = ""
    replicas: int = 0
    phase_since: Time
    deadline: Time | None = None
    promoted_at: Time | None = None
    drain_deadline: Time | None = None
    error: str = ""
    transitions: tuple[Transition, ...] = ()

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL_PHASES


class ActiveRelease(Record):
    """`steer.active.<env>`: the release that serves, the atomic switch of traffic. Outlives its environment.

    `previous` is the release before it, another one; `deployment` is the id whose replicas serve; `request_floor` is the
    greatest request id ever trimmed.
    """

    version: str = ""
    previous: str = ""
    deployment: str = ""
    image: str = ""
    platforms: tuple[str, ...] = ()
    route_generation: Annotated[int, Field(ge=0)] = 0
    request_floor: str = ""


class Scale(Record):
    """`steer.scale.<env>`: the number of replicas that a scaling policy has decided.

    A scale-down that is being held has `low_since`, and `low_peak`, the highest number wanted since. An activation wakes
    a cold environment where its sequence is above `activation_sequence`: those up to it had been seen.
    """

    effective_replicas: Annotated[int, Field(ge=0)]
    policy: Literal["resource", "concurrency", "idle", "activation"]
    reason: str = ""
    changed_at: Time
    low_since: Time | None = None
    low_peak: Annotated[int, Field(ge=0)] = 0
    activation_sequence: Annotated[int, Field(ge=0)] = 0
