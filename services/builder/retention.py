"""What is forgotten: per app the builds that are done with, but for the newest and those that a release names."""

from datetime import datetime

from services.builder.builds import forget
from services.builder.draft import Draft
from services.builder.state import State
from shared.service import MAX_BATCH
from shared.subjects import Key

KEPT = 20
URGENT = 10 * KEPT
"""So many are forgotten even while there is other work, so that memory has a bound."""

MOST_CHANGES = MAX_BATCH // 2


def is_urgent(state: State, key: Key) -> bool:
    """Whether forgetting must not wait."""
    return len(state.indexes.ended_of.get(key, ())) >= URGENT


def decide_app(state: State, key: Key, now: datetime) -> Draft:
    """Request, status, decision and notices of a build go together."""
    draft = Draft(state, "app", key, now)
    ended = state.indexes.ended_of.get(key, ())
    old = [identity for _, identity in list(ended)[:-KEPT]] if len(ended) > KEPT else []
    gone = [identity for identity in old if (*key, identity) not in state.indexes.used]
    for identity in gone:
        if len(draft.changes) >= MOST_CHANGES:
            draft.wake_at = now
            break
        forget(draft, (*key, identity))
    return draft
