"""What is known of the replicas of a workload, read from the records.

A replica is *gone* when its instance has failed or stopped, *lost* when its node is down or decommissioned, *live*
otherwise. Gone and lost ones do not count. A live one has to leave when its node drains, when it stays unhealthy, or when
it has not become healthy by its deadline.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from services.scheduler.draft import Draft
from services.scheduler.state import State, Target
from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.run import RunSpec
from shared.service import Version
from shared.subjects import Key

UNHEALTHY_SECONDS = 60
"""A replica that was healthy is replaced when it has been unhealthy for so long."""
DEFAULT_GRACE_SECONDS = 60.0
BACKOFF_SECONDS = 10
MAX_BACKOFF_SECONDS = 300
RESET_AFTER_HEALTHY_SECONDS = 600

_ID_AND_NODE = itemgetter(1, 0)


class Replica(NamedTuple):
    """An assignment with what is known of it. `instance_at` is the server's timestamp of the instance's report."""

    key: Key
    version: Version
    assignment: Assignment
    instance: Instance | None
    instance_at: datetime | None
    gone: bool
    lost: bool
    node_drains: bool

    @property
    def id(self) -> str:
        return self.key[1]

    @property
    def node(self) -> str:
        return self.key[0]

    @property
    def live(self) -> bool:
        return not self.gone and not self.lost

    @property
    def healthy(self) -> bool:
        return self.live and self.instance is not None and self.instance.state == "healthy"

    @property
    def started(self) -> bool:
        return self.live and self.instance is not None and self.instance.state in ("running", "healthy", "unhealthy")

    @property
    def runs(self) -> bool:
        """Wanted and there, as far as is known."""
        return self.assignment.desired == "run" and not self.gone and not self.lost

    @property
    def fate(self) -> str:
        """What became of it, for people."""
        if self.lost:
            return f"lost with node {self.node}"
        if self.instance is None:
            return "not reported yet"
        code = "" if self.instance.exit_code is None else f" with exit code {self.instance.exit_code}"
        return f"{self.instance.state}{code}" + (f": {self.instance.message}" if self.instance.message else "")


def replicas_of(state: State, target: Target) -> list[Replica]:
    """Every replica of a workload, by id."""
    return [_replica(state, key) for key in sorted(state.replicas_of.get(target, ()), key=_ID_AND_NODE)]


def _replica(state: State, key: Key) -> Replica:
    version = state.tables[subjects.ASSIGNMENT][key]
    assert isinstance(version.record, Assignment)
    report = state.tables[subjects.INSTANCE].get(key)
    instance = report.record if report is not None and isinstance(report.record, Instance) else None
    return Replica(
        key=key,
        version=version,
        assignment=version.record,
        instance=instance,
        instance_at=report.at if report is not None else None,
        gone=instance is not None and instance.state in ("failed", "stopped"),
        lost=key[0] in state.gone_nodes,
        node_drains=key[0] in state.draining_nodes,
    )


def health_seconds(run: RunSpec) -> float:
    """How long a replica may take to become healthy: twice the grace and a minute (reference: `health_deadline`)."""
    grace = run.healthcheck.grace_period_seconds if run.healthcheck else 0
    return 2 * (grace or DEFAULT_GRACE_SECONDS) + 60


def must_leave(item: Replica, draft: Draft) -> str:
    """Why a live replica has to be replaced; empty where it has not. Notes when it would have to."""
    if item.node_drains:
        return f"node {item.node} drains"
    if item.healthy:
        return ""
    at, why = _patience(item)
    if draft.now >= at:
        return why
    draft.wake(at)
    return ""


def _patience(item: Replica) -> tuple[datetime, str]:
    """Until when a replica that is not healthy is borne with, and the reason after that."""
    state = item.instance.state if item.instance is not None else "not reported"
    if state == "unhealthy" and item.instance_at is not None:
        return item.instance_at + timedelta(seconds=UNHEALTHY_SECONDS), f"unhealthy for {UNHEALTHY_SECONDS} s"
    seconds = health_seconds(item.assignment.run)
    start = max(item.assignment.created_at, item.assignment.not_before or item.assignment.created_at)
    return start + timedelta(seconds=seconds), f"{state}, not healthy within {seconds:.0f} s"


def next_attempt(old: Replica) -> tuple[int, float]:
    """The number of the start that follows `old`, and the seconds to hold it back: none, then 10 doubling to 300.

    Ten minutes of health start the count anew; leaving for the node's sake is no failure.
    """
    if old.lost or old.node_drains:
        return old.assignment.attempt, 0.0
    seen = old.instance
    healthy = seen.since - seen.healthy_since if seen is not None and seen.healthy_since is not None else timedelta()
    if healthy.total_seconds() >= RESET_AFTER_HEALTHY_SECONDS:
        return 1, 0.0
    attempt = old.assignment.attempt + 1
    if attempt < 2:
        return attempt, 0.0
    return attempt, float(min(BACKOFF_SECONDS * 2 ** min(attempt - 2, 10), MAX_BACKOFF_SECONDS))


def free_slots(members: Iterable[Replica]) -> Iterator[int]:
    """Slots, from 0, that no replica of the set holds that may still be running somewhere."""
    held = {item.assignment.slot for item in members if not item.gone}
    return (slot for slot in count() if slot not in held)
