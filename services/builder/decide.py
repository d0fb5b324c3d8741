"""`decide(state, now)`: what the builder does next, and when it has to look again.

It looks at what has changed since it last looked and at what has become due: builds first, since the workers that they
give back are what the pools give out: a pool in which a build has changed is looked at in the same pass, so that what is
decided does not depend on what else was marked. A worker that is given back and out in the same pass is written once. A
pass changes nothing.
"""

from collections.abc import Iterable, Iterator, Set
from datetime import datetime

from services.builder.builds import decide_build
from services.builder.draft import Draft
from services.builder.pools import decide_pool
from services.builder.retention import decide_app, is_urgent
from services.builder.state import Look, State, Target
from shared.service import MAX_BATCH, Decision, Plan
from shared.subjects import Key, Kind

_ORDER = ("build", "pool", "app")


def decide(state: State, now: datetime) -> Plan:
    """One pass: at most one commit. Says `wake_at = now` if more is left."""
    this = _Pass(state, now)
    for target in _targets(state, now, this.touched):
        if not this.take(target):
            break
    return this.plan()


def _targets(state: State, now: datetime, touched: Set[Target]) -> Iterator[Target]:
    """What has to be looked at, each kind in the order of names; `touched` are the pools whose builds have changed."""
    due = {target for at, target in state.due.irange(maximum=(now, ("~",)))}
    for kind in _ORDER:
        marked = state.dirty.irange((kind,), (kind, "~"))
        here = [target for target in (*due, *touched) if target[0] == kind]
        yield from sorted({*marked, *here}) if here else marked


class _Pass:
    def __init__(self, state: State, now: datetime) -> None:
        self.state, self.now = state, now
        self.drafts: list[Draft] = []
        self.looks: dict[Target, Look] = {}
        self.touched: set[Target] = set()
        self.size = 0
        self.more = False

    def take(self, target: Target) -> bool:
        """Look at one target; False ends the pass, with what is left for the next one."""
        if target[0] == "pool":
            return self._pool(target)
        if target[0] == "app" and self.drafts and not is_urgent(self.state, target[1:]):
            self.more = True  # to forget can wait until there is nothing else to do
            return True
        draft = self._draft(target)
        return self._add(target, (draft,), draft.wake_at)

    def _draft(self, target: Target) -> Draft:
        kind, *key = target
        if kind == "build":
            return decide_build(self.state, tuple(key), self.now)
        return decide_app(self.state, tuple(key), self.now)

    def _pool(self, target: Target) -> bool:
        statuses = {draft.key: status for draft in self.drafts if (status := draft.status_in(target[1])) is not None}
        if not all(status.terminal for status in statuses.values()):
            self.more = True  # whoever joins the queue is in the log before anything is given out
            return False
        ended = [draft for draft in self.drafts if draft.key in statuses]
        look = decide_pool(self.state, target[1], self.now, MAX_BATCH - self.size, ended)
        added = self._add(target, look.drafts, look.wake_at)
        if look.more:
            self.more = True
            self.looks.pop(target, None)  # it stays marked: the next pass goes on
        return added and not look.more

    def _add(self, target: Target, drafts: Iterable[Draft], wake_at: datetime | None) -> bool:
        changing = [draft for draft in drafts if draft.changes]
        self.touched.update(("pool", pool) for draft in changing if (pool := draft.pool))
        size = sum(draft.size for draft in changing)
        if self.size + size > MAX_BATCH:
            assert self.drafts, f"the decision about {target} does not fit into one commit"
            self.more = True
            return False
        self.drafts += changing
        self.size += size
        self.looks[target] = Look(self.state.dirty.get(target), wake_at)
        return True

    def plan(self) -> Plan:
        written: set[tuple[Kind, Key]] = set()
        decisions: list[Decision] = []
        for draft in reversed(self.drafts):
            draft.changes = [change for change in draft.changes if (change.kind, change.key) not in written]
            written.update((change.kind, change.key) for change in draft.changes)
            decisions.append(draft.decision())
        return Plan(tuple(reversed(decisions)), self.now if self.more else self._wake_at(), self.looks)

    def _wake_at(self) -> datetime | None:
        others = next((at for at, target in self.state.due if target not in self.looks), None)
        wakes = [look.wake_at for look in self.looks.values() if look.wake_at is not None]
        return min([*wakes, others] if others is not None else wakes, default=None)
