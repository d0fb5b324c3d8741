"""The state as one pass looks at it: whose turn it is to change, and what becomes of each pool.

A pool that runs changes by a second worker beside the first. One edit can ask for that in any number of pools, so in each
namespace at most `limit` change at a time: each takes a turn, in the order of looking, and gives it back when its worker
has loaded its members, or after a minute. A pool that is changing already needs no other turn, only a few seconds between
one change and the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from sortedcontainers import SortedSet

from services.pooler.access import PoolKey, pool_named
from services.pooler.world import State
from shared.model.pool import MAX_LIMIT, Pool, PoolPlacement

CHANGE_SECONDS = 60
"""How long a change may take: then who moves leaves its old pool, and the pool's turn is over, ready or not."""
SPACING_SECONDS = 3
"""A pool that is changing changes again at most so often: functions that come one after the other share a worker."""
_CHANGE = timedelta(seconds=CHANGE_SECONDS)
_TICK = timedelta(microseconds=1)
_NOTHING: SortedSet[tuple[datetime, PoolKey]] = SortedSet()


class PoolPlan(NamedTuple):
    """What becomes of one pool.

    `record` is what it should be, None = it should not be. `queued`: admitted, but not before the pool's turn. `soon`:
    admitted with its next change, seconds from now.
    `unknown_runtime`: nobody can be in it. `hold`: what is there cannot be judged, so it stays.
    """

    key: PoolKey
    before: Pool | None
    record: Pool | None
    members: tuple[str, ...] = ()
    staying: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    soon: tuple[str, ...] = ()
    unknown_runtime: bool = False
    hold: bool = False
    waits: bool = False
    """Something that it should be has to wait for its turn."""
    wake_at: datetime | None = None

    @property
    def changed(self) -> bool:
        return self.record is not self.before

    @property
    def rebuilt(self) -> bool:
        """Whether another worker has to run it."""
        return (self.record.signature if self.record else "") != (self.before.signature if self.before else "")


class Rejection(NamedTuple):
    """What the placement of a function says for which there is no place, and the outcome and the reasons of that."""

    placement: PoolPlacement
    outcome: str
    reasons: Mapping[str, Any]


@dataclass
class View:
    """The state as one pass looks at it: each pool is planned once, and turns are given out in the order of looking."""

    state: State
    now: datetime
    plans: dict[PoolKey, PoolPlan] = field(default_factory=dict)
    placements: dict[PoolKey, PoolPlacement] = field(default_factory=dict)
    rejections: dict[PoolKey, Rejection] = field(default_factory=dict)
    """What is the same for every function that is in a pool, or that does not get into it."""
    turns: dict[str, list[PoolKey]] = field(default_factory=dict)
    """To whom turns were given in this pass, by namespace."""

    def __post_init__(self) -> None:
        self.change_ends = self.now + _CHANGE
        """When a change that begins now is over at the latest."""

    def changes_now(self, key: PoolKey) -> bool:
        until = self.state.changing_until.get(key)
        return until is not None and until > self.now

    def changes_again_at(self, key: PoolKey) -> datetime | None:
        """When a pool that is changing may change again; None where it may now."""
        record = self.state.pool(key)
        if record is None or not self.changes_now(key):
            return None
        at = record.changed_at + timedelta(seconds=SPACING_SECONDS)
        return at if at > self.now else None

    def free_turns(self, namespace: str) -> int:
        """How many more pools of the namespace may begin to change."""
        free = self.state.policy(namespace).limit - len(self.turns.get(namespace, ()))
        for _ in self.state.changing.get(namespace, _NOTHING).irange((self.now + _TICK,)) if free > 0 else ():
            free -= 1
            if free <= 0:
                break
        return max(free, 0)

    def take_turn(self, key: PoolKey) -> bool:
        if self.changes_now(key):
            return True
        if not self.free_turns(key.namespace):
            return False
        self.turns.setdefault(key.namespace, []).append(key)
        return True

    def changing(self, namespace: str) -> list[PoolKey]:
        """The first of those that have their turn now."""
        under_way = self.state.changing.get(namespace, _NOTHING).irange((self.now + _TICK,))
        return [*(pool for _, pool in islice(under_way, MAX_LIMIT)), *self.turns.get(namespace, ())]

    def next_turn_at(self, namespace: str) -> datetime | None:
        """When the first of the changes under way is over at the latest."""
        later = self.state.changing.get(namespace, _NOTHING).irange((self.now + _TICK,))
        return next((until for until, _ in later), None)

    def runs_elsewhere(self, key: PoolKey, name: str) -> str | None:
        """The other pool in which a function is placed and a member, as the placement names it."""
        function = (key.namespace, name)
        placement = self.state.placement(function)
        if placement is None or placement.rejected:
            return None
        for text in (placement.pool, placement.moving_from):
            if text and text != str(key) and self.state.is_member(function, pool_named(function, text)):
                return text
        return None
