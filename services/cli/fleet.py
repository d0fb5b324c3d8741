"""What runs where: assignments with their instances, counted by environment. Pure; the view it reads is `World`."""

from dataclasses import dataclass

from services.cli import names
from services.cli.world import World
from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import ActiveRelease, Scale
from shared.model.environment import Environment
from shared.model.service import Notice
from shared.subjects import Key, Kind

KINDS: tuple[Kind, ...] = (
    subjects.ENVIRONMENT,
    subjects.ACTIVE,
    subjects.SCALE,
    subjects.ASSIGNMENT,
    subjects.INSTANCE,
    subjects.NOTICE,
)
"""What the functions here look at."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One assignment and what its node says of it."""

    node: str
    id: str
    assignment: Assignment
    instance: Instance | None

    @property
    def state(self) -> str:
        return self.instance.state if self.instance else "not answered"

    @property
    def healthy(self) -> bool:
        return self.assignment.desired == "run" and self.state == "healthy"


@dataclass(frozen=True, slots=True)
class Count:
    """The replicas of an environment: wanted, those that ought to run, and those of them that are healthy."""

    desired: int
    running: int
    healthy: int


def replicas(world: World, environment: Key | None = None, node: str | None = None) -> list[Replica]:
    """The replicas of an environment, of a node, or all."""
    wanted = names.joined(environment) if environment else None
    return [
        Replica(key[0], key[1], assignment, world.record(subjects.INSTANCE, key, Instance))
        for key, assignment in world.records(subjects.ASSIGNMENT, Assignment, *((node,) if node else ()))
        if wanted is None or (assignment.workload.kind == "environment" and assignment.workload.key == wanted)
    ]


def count(world: World, environment: Key) -> Count:
    """Only the replicas of the release that serves are counted."""
    active = world.record(subjects.ACTIVE, environment, ActiveRelease)
    if active is None or not active.version:
        return Count(0, 0, 0)
    serving = [
        replica
        for replica in replicas(world, environment)
        if replica.assignment.desired == "run" and replica.assignment.release == active.version
    ]
    return Count(_desired(world, environment), len(serving), sum(replica.healthy for replica in serving))


def _desired(world: World, key: Key) -> int:
    environment = world.record(subjects.ENVIRONMENT, key, Environment)
    if environment is None:
        return 0
    scale = world.record(subjects.SCALE, key, Scale)
    least = 0 if environment.service.scale_to_zero else environment.replicas.min
    wanted = scale.effective_replicas if scale else environment.replicas.min
    return max(least, min(wanted, environment.replicas.most))


def notices(world: World, key: Key | None = None) -> list[tuple[Key, Notice]]:
    """The notices that stand, or those whose key begins with this one behind the service and the kind."""
    return [
        (found, notice)
        for found, notice in world.records(subjects.NOTICE, Notice)
        if key is None or found[2 : 2 + len(key)] == key
    ]
