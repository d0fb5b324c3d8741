"""What a pass has looked at, and `settle`: which of it needs no second look, and when the rest is due."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from services.scheduler.placement import Request
from services.scheduler.state import State, Target
from shared.service import Plan

MAX_WAITING = 2
"""What one workload can wait for at a time: a place for the set that serves, and one for the set of a deployment."""


class Look(NamedTuple):
    """What a pass found out about one target: when to look again, and what it could not place.

    `mark` and `capacity` are the marks that the pass saw: where they have moved since, the target is looked at again.
    `silent_since` is for how long a node had been listened to in vain, where that is too long.
    """

    mark: int | None
    capacity: int
    wake_at: datetime | None = None
    waiting: tuple[Request, ...] = ()
    decided: bool = False
    silent_since: datetime | None = None


def settle(state: State, plan: Plan, now: datetime) -> None:
    """A pass is done: take its marks away, except where something has changed since, and note when to look again."""
    looks: Iterable[tuple[Target, Look]] = plan.looks.items()
    for target, look in looks:
        if look.waiting and look.capacity != state.capacity_marks:
            state.mark(target)
        elif look.mark is not None and state.dirty.get(target) == look.mark:
            del state.dirty[target]
        _set_due(state, target, look.wake_at)
        if look.silent_since is not None and state.listening.get(target[1]) == look.silent_since:
            del state.listening[target[1]]  # from now on it is due, or heard again
        _set_waiting(state, "/".join(target), look.waiting)


def _set_waiting(state: State, name: str, requests: tuple[Request, ...]) -> None:
    for index in range(MAX_WAITING):
        if index < len(requests):
            state.waiting.add(replace(requests[index], workload=f"{name}#{index}"))
        else:
            state.waiting.discard(f"{name}#{index}")


def _set_due(state: State, target: Target, at: datetime | None) -> None:
    before = state.due_at.pop(target, None)
    if before is not None:
        state.due.discard((before, target))
    if at is not None:
        state.due_at[target] = at
        state.due.add((at, target))
