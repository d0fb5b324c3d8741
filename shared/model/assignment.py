"""`Assignment` (owned by the scheduler) and `Instance` (owned by the agent): one replica on one node, wanted and seen."""

from typing import Annotated, Literal

from pydantic import Field

from shared.model.base import Record, Text, Time
from shared.model.run import Resources, RunSpec

Desired = Literal["run", "drain", "stop"]
InstanceState = Literal["pending", "pulling", "starting", "running", "healthy", "unhealthy", "failed", "stopped"]


class WorkloadRef(Record):
    """What the replica belongs to: `environment` with `project/app/environment`, or `pool` with its four tokens."""

    kind: Literal["environment", "pool"]
    key: str


class Assignment(Record):
    """`steer.assignment.<node>.<id>`: all that an agent needs to run one replica.

    `desired` only moves run, drain, stop; what is wanted again is a new incarnation. `attempt` counts the starts of a
    replica that keeps failing, and `not_before` holds the next one back. `replaces` names the assignment whose place
    this one takes.
    """

    workload: WorkloadRef
    release: str = ""
    desired: Desired = "run"
    run: RunSpec
    config_hash: str
    deployment: str = ""
    slot: Annotated[int, Field(ge=0)] = 0
    incarnation: Annotated[int, Field(ge=0)] = 0
    resources: Resources
    volume_epoch: int = 0
    created_at: Time
    drain_deadline: Time | None = None
    attempt: Annotated[int, Field(ge=0)] = 0
    not_before: Time | None = None
    replaces: str = ""
    reason: Text = ""


class Instance(Record):
    """`steer.instance.<node>.<assignment>`: what became of an assignment.

    `assignment_sequence` is the version of the assignment that this answers. `healthy_since` is when the replica became
    healthy last, by the same clock as `since`, and stays when it is healthy no more.
    """

    assignment_sequence: int
    state: InstanceState
    ports: dict[str, int] = Field(default_factory=dict)
    exit_code: int | None = None
    message: str = ""
    members: dict[str, str] = Field(default_factory=dict)
    since: Time
    healthy_since: Time | None = None
