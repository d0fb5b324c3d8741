"""`decide(state, now)`: what the scheduler does next, and when it has to look again.

It looks at what has changed since it last looked and at what has become due, nodes first. What one thing takes is
reserved for the rest of the pass and given back at its end: a pass changes nothing.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from heapq import merge
from itertools import groupby, islice

from services.scheduler.draft import Draft
from services.scheduler.environments import decide_environment
from services.scheduler.looks import Look
from services.scheduler.nodes import Silence, decide_fleet, decide_node, losing, silent, silent_since
from services.scheduler.pools import decide_pool
from services.scheduler.retention import decide_retention, decide_sweep
from services.scheduler.snapshots import decide_volume
from services.scheduler.state import State, Target
from shared.service import MAX_BATCH, Decision, Plan

MOST_IN_VAIN = 500
"""So many looks that come to nothing end a pass, so that whoever waits for its end does not wait long."""

_ORDER = ("fleet", "node", "environment", "pool", "volume", "retention", "image_sweep")


def decide(state: State, now: datetime) -> Plan:
    """One pass: at most one commit. Says `wake_at = now` if more is left."""
    this = _Pass(state, now)
    with state.cluster.trial():
        for target in _targets(state, now):
            if not this.take(target):
                break
    return this.plan()


def _targets(state: State, now: datetime) -> Iterator[Target]:
    """What has to be looked at, nodes before environments, each in the order of names."""
    due = {target for at, target in state.due.irange(maximum=(now, ("~",)))}
    due.update([("node", name) for name in silent(state, now)])
    for kind in _ORDER:
        marked = state.dirty.irange((kind,), (kind, "~"))
        also = sorted(target for target in due if target[0] == kind)
        if also:  # the marked ones are many and in order, and a pass takes only the first
            yield from (target for target, _ in groupby(merge(marked, also)))
        else:
            yield from marked


class _Pass:
    def __init__(self, state: State, now: datetime) -> None:
        self.state, self.now = state, now
        self.decisions: list[Decision] = []
        self.looks: dict[Target, Look] = {}
        self.size = 0
        self.in_vain = 0
        self.more = False
        self.nodes_decided = False

    @cached_property
    def losing(self) -> int:
        return losing(self.state, self.now)

    def take(self, target: Target) -> bool:
        """Look at one target; False ends the pass, with what is left for the next one."""
        if target[0] not in ("fleet", "node") and self.nodes_decided:
            self.more = True  # replicas follow what is in the log about their nodes
            return False
        if self.in_vain >= MOST_IN_VAIN:
            self.more = True
            return False
        decisions, drafts = self._decide(target)
        size = sum([decision.size for decision in decisions])
        if self.size + size > MAX_BATCH:
            assert self.decisions, f"the decision about {target} does not fit into one commit"
            self.more = True
            return False
        self.decisions += decisions
        self.nodes_decided = self.nodes_decided or (target[0] == "node" and bool(decisions))
        self.size += size
        self.in_vain += not decisions
        self.looks[target] = Look(
            mark=self.state.dirty.get(target),
            capacity=self.state.capacity_marks,
            wake_at=min([at for draft in drafts for at in draft.wakes], default=None),
            waiting=tuple([request for draft in drafts for request in draft.waiting]),
            decided=bool(decisions),
            silent_since=silent_since(self.state, target[1], self.now) if target[0] == "node" else None,
        )
        return True

    def _decide(self, target: Target) -> tuple[list[Decision], list[Draft]]:
        match target:
            case ("environment", *key):
                return decide_environment(self.state, tuple(key), self.now)
            case ("volume", *key):
                return decide_volume(self.state, tuple(key), self.now)
            case ("retention", *key):
                return decide_retention(self.state, tuple(key), self.now)
            case ("image_sweep", *key):
                return decide_sweep(self.state, tuple(key), self.now)
            case ("pool", *key):
                return decide_pool(self.state, tuple(key), self.now)
            case ("node", name):
                return decide_node(self.state, name, self.now, lambda: self.losing)
            case _:
                return decide_fleet(self.state, self.now)

    def plan(self) -> Plan:
        return Plan(tuple(self.decisions), self.now if self.more else self._wake_at(), self.looks)

    def _wake_at(self) -> datetime | None:
        wakes = [look.wake_at for look in self.looks.values() if look.wake_at is not None]
        wakes += islice((at for at, target in self.state.due if target not in self.looks), 1)
        heard = (at for name, at in self.state.listening.items() if ("node", name) not in self.looks)
        wakes += [at + Silence.of(self.state).suspect_after for at in islice(heard, 1)]
        return min(wakes, default=None)
