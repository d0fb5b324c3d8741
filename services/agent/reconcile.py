"""What is wanted and what is there → what to do. Pure, and level-triggered: it looks at the whole, not at an event.

| assignment           | replica                  | action                                              |
|----------------------|--------------------------|-----------------------------------------------------|
| run                  | none, never reported     | start, once `not_before` has come; until then wait  |
| run                  | none, reported as alive  | answer `failed`: it was lost; never start it twice  |
| drain                | none, never reported     | answer `stopped`                                    |
| run, drain           | alive or ended           | answer                                              |
| stop                 | alive                    | stop                                                |
| stop                 | ended or none            | answer `stopped`, or `failed` where it had failed   |
| deleted              | alive                    | stop                                                |
| deleted              | ended or none            | forget: its instance record goes                    |
| none                 | any                      | as deleted; what is held, is held                   |
| unreadable           | any                      | leave alone                                         |
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from shared.model.assignment import Desired, InstanceState

ENDED: frozenset[InstanceState] = frozenset({"failed", "stopped"})
NEVER_STARTED: frozenset[InstanceState] = frozenset({"pending"})

LOST = "lost: it was reported as {state}, and this node has no trace of its process"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the log says of one assignment."""

    desired: Desired
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class World:
    """All that a pass looks at.

    `deleted` are tombstones, `unreadable` assignments without a version that can be read. `reported` are the states
    in the log of this node's instances, `replicas` those of what this agent has: started, adopted or ended.
    The load that the log's part comes from was complete. `held` are replicas that a log did not know which did not know
    this node either: having no assignment does not end them.
    """

    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    deleted: Set[str] = frozenset()
    unreadable: Set[str] = frozenset()
    replicas: Mapping[str, InstanceState] = field(default_factory=dict)
    reported: Mapping[str, InstanceState] = field(default_factory=dict)
    held: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. An `answer` without a state repeats what the replica, or else the last report, says."""

    kind: Literal["start", "stop", "answer", "forget", "hold"]
    assignment: str
    state: InstanceState | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to do now, and when to look again although nothing has changed."""

    actions: tuple[Action, ...]
    wake_at: datetime | None = None


def reconcile(world: World, now: datetime) -> Outcome:
    """What to do about every assignment and every replica, in the order of their ids."""
    names = sorted({*world.wanted, *world.deleted, *world.replicas})
    actions = tuple(action for name in names if (action := _about(world, name, now)) is not None)
    waits = [
        wanted.not_before
        for name, wanted in world.wanted.items()
        if wanted.not_before is not None and wanted.not_before > now and _may_start(world, name, wanted)
    ]
    return Outcome(actions, min(waits, default=None))


def _about(world: World, name: str, now: datetime) -> Action | None:
    wanted = world.wanted.get(name)
    if wanted is not None:
        return _assigned(world, name, wanted, now)
    if name in world.unreadable:
        return None
    if name in world.deleted or name not in world.held:
        return Action("stop" if _is_alive(world, name) else "forget", name)
    return Action("hold", name)


def _assigned(world: World, name: str, wanted: Wanted, now: datetime) -> Action:
    if _may_start(world, name, wanted):
        if wanted.not_before is None or wanted.not_before <= now:
            return Action("start", name)
        return Action("answer", name, "pending", f"waits until {wanted.not_before.isoformat()}")
    if wanted.desired == "stop" and _is_alive(world, name):
        return Action("stop", name)
    if name in world.replicas:
        return Action("answer", name)
    return _answer_without_replica(world.reported.get(name), name, wanted)


def _answer_without_replica(reported: InstanceState | None, name: str, wanted: Wanted) -> Action:
    if reported in ENDED:
        return Action("answer", name)
    if reported is None or reported in NEVER_STARTED:
        return Action("answer", name, "stopped", "it was never started on this node")
    if wanted.desired == "stop":
        return Action("answer", name, "stopped", "this node has no trace of its process")
    return Action("answer", name, "failed", LOST.format(state=reported))


def _may_start(world: World, name: str, wanted: Wanted) -> bool:
    reported = world.reported.get(name)
    return wanted.desired == "run" and name not in world.replicas and (reported is None or reported in NEVER_STARTED)


def _is_alive(world: World, name: str) -> bool:
    return name in world.replicas and world.replicas[name] not in ENDED
