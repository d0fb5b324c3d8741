"""How many workers there should be: pure.

Workers have ordinals, and fewer workers means that the highest ordinals go; so what has to stay decides by its ordinal,
and everything below it stays too. A worker that is coming up takes one of those who wait, and so does an ordinal that
has no worker yet. What cannot be used is trimmed where it is in the tail; below the tail it is named for replacement,
and growth goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.builder.workers import COMING, IDLE_TOO_LONG, Observation, WorkerState


@dataclass(frozen=True, slots=True)
class Wanted:
    """`replace` names workers whose place must be made anew."""

    replicas: int
    replace: tuple[str, ...] = ()


def determine_replicas(
    observations: Sequence[Observation], requests: int, *, min_workers: int = 0, max_workers: int = 1_000_000
) -> Wanted:
    """`requests` is how many still wait, after those who got a worker."""
    leased = 1 + max((each.ordinal for each in observations if each.state is WorkerState.LEASED), default=-1)
    coming = [each.ordinal for each in observations if each.state in COMING]
    count = max(min_workers, leased, 1 + max(coming, default=-1))
    kept = [each for each in observations if each.ordinal < count]
    missing = count - len({each.ordinal for each in kept})
    left = max(0, requests - len(coming) - missing)
    trimming = len(kept) < len(observations)
    wanted = count if trimming else count + left
    replicas = max(min(wanted, max_workers), min_workers, leased)
    broken = (each for each in kept if each.ordinal < replicas and is_broken(each))
    return Wanted(replicas, tuple(sorted(each.name for each in broken)))


def is_broken(observation: Observation) -> bool:
    """Whether it takes no work and never will; one that is being deleted is on its way already."""
    if observation.state in COMING or observation.state in (WorkerState.LEASED, IDLE_TOO_LONG):
        return False
    return not observation.facts.record.deleting
