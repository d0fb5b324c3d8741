"""Nodes: alive, suspect, down by the silence of their heartbeats; drain; decommissioning; the fleet's interval.

Silence counts by receipt, and only from when somebody listened: a new leader, or one that was cut off, begins anew, so
nobody is marked down by an election. Many nodes silent at once is taken for our own blindness, and confirmed for longer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from services.scheduler.draft import Draft
from services.scheduler.state import SERVICE, State
from shared import subjects
from shared.model.node import Fleet, Node, NodeControl, NodeStatus
from shared.model.service import Notice
from shared.service import Decision

MASS_LOSS_SHARE = 0.3
MASS_LOSS_LEAST = 5
MASS_LOSS_SECONDS = 60
MASS_LOSS_EXTRA_SECONDS = 30
INTERVALS: tuple[tuple[int, Literal[2, 5, 10, 20]], ...] = ((1000, 2), (2500, 5), (5000, 10))
"""Up to so many nodes send a heartbeat every so many seconds: under 500 a second in all. Beyond that, every 20 s."""

NodeState = Literal["alive", "suspect", "down"]
Losing = Callable[[], int]
Drain = Literal["none", "draining", "drained"]


@dataclass(frozen=True, slots=True)
class Silence:
    """How long a node may be silent before it is suspect, and before it is down."""

    suspect_after: timedelta
    down_after: timedelta

    @classmethod
    def of(cls, state: State) -> "Silence":
        fleet = state.get(subjects.FLEET, (), Fleet) or Fleet()
        interval = fleet.heartbeat_interval_seconds
        return cls(timedelta(seconds=max(10, 2.5 * interval)), timedelta(seconds=max(30, 4 * interval)))


def silent(state: State, now: datetime) -> Iterator[str]:
    """The nodes that were not heard for so long that they have to be looked at."""
    suspect_after = Silence.of(state).suspect_after
    for name, at in state.listening.items():
        if now - at < suspect_after:
            return
        yield name


def silent_since(state: State, name: str, now: datetime) -> datetime | None:
    """Since when one of these is silent; None for any other node."""
    at = state.listening.get(name)
    return at if at is not None and now - at >= Silence.of(state).suspect_after else None


def decide_node(state: State, name: str, now: datetime, losing: Losing) -> tuple[list[Decision], list[Draft]]:
    """`losing` counts the nodes that are silent for too long, or went down within the last minute."""
    draft = Draft(state, "node", (name,), now)
    if state.deleted(subjects.NODE, (name,)):
        return _decommission(state, name, draft), [draft]
    if state.get(subjects.NODE, (name,), Node) is None:
        return [], [draft]
    before = state.get(subjects.NODE_STATUS, (name,), NodeStatus)
    condition, reason = _condition(state, name, before, losing, draft)
    status = NodeStatus(
        state=condition,
        drain=_drain(state, name),
        since=before.since if before is not None and before.state == condition else now,
        reason=reason,
    )
    if before is None or (before.state, before.drain) != (status.state, status.drain):
        draft.change(subjects.NODE_STATUS, (name,), status)
        draft.outcomes.append(_outcome(before, status))
        _tell(name, before, status, draft)
    decision = draft.decision()
    return ([decision] if decision is not None else []), [draft]


def _condition(
    state: State, name: str, before: NodeStatus | None, losing: Losing, draft: Draft
) -> tuple[NodeState, str]:
    if before is None:
        draft.because(state.sequence_of(subjects.NODE, (name,)))
        return "alive", "registered"
    if state.attended_at is None:
        return before.state, before.reason
    heard = state.heard.get(name)
    since = max(heard or state.attended_at, state.tables[subjects.NODE][(name,)].at)
    limits = Silence.of(state)
    silent = draft.now - since
    draft.observation.update(attended_at=state.attended_at, heard_at=heard, silent_seconds=silent.total_seconds())
    if silent < limits.suspect_after:
        if since != state.listening.get(name):  # else it is looked at as soon as it is silent
            draft.wake(since + limits.suspect_after)
        return ("alive", "heard") if heard is not None else (before.state, before.reason)
    down_at = since + limits.down_after
    if draft.now >= down_at and before.state != "down":
        count = draft.observation["losing"] = losing()
        if _mass_loss(state, count):
            down_at += timedelta(seconds=MASS_LOSS_EXTRA_SECONDS)
            if draft.now < down_at:
                _tell_mass_loss(state, count, draft)
    if draft.now < down_at:
        draft.wake(down_at)
        return ("suspect" if before.state == "alive" else before.state), f"silent for {silent.total_seconds():.0f} s"
    return "down", f"silent for {silent.total_seconds():.0f} s"


def _mass_loss(state: State, losing: int) -> bool:
    return losing >= MASS_LOSS_LEAST and losing > MASS_LOSS_SHARE * node_count(state)


def _tell_mass_loss(state: State, losing: int, draft: Draft) -> None:
    key = (SERVICE, "mass_loss", "fleet")
    if state.get(subjects.NOTICE, key, Notice) is None:
        message = f"{losing} of {node_count(state)} nodes are silent: held for {MASS_LOSS_EXTRA_SECONDS} s more"
        draft.change(subjects.NOTICE, key, Notice(severity="error", message=message, at=draft.now))


def losing(state: State, now: datetime) -> int:
    """How many nodes are being lost just now; a walk over the nodes, for the passes that have to judge one."""
    if state.losing is not None or state.attended_at is None:
        return state.losing or 0
    limits = Silence.of(state)
    count = 0
    for key, version in state.tables[subjects.NODE].items():
        status = state.get(subjects.NODE_STATUS, key, NodeStatus)
        if version.record is None or status is None:
            continue
        if status.state == "down":
            count += now - status.since <= timedelta(seconds=MASS_LOSS_SECONDS)
        else:
            count += now - max(state.heard.get(key[0], state.attended_at), version.at) >= limits.down_after
    return count


def _drain(state: State, name: str) -> Drain:
    control = state.get(subjects.NODE_CONTROL, (name,), NodeControl)
    if control is None or not control.drain:
        return "none"
    return "draining" if state.replicas_on.get(name) else "drained"


def _outcome(before: NodeStatus | None, status: NodeStatus) -> str:
    if before is None:
        return "joins: registered"
    parts = []
    if before.state != status.state:
        parts.append(f"{before.state} → {status.state}: {status.reason}")
    if before.drain != status.drain:
        parts.append({"none": "drain ends", "draining": "drains", "drained": "drained: no replicas left"}[status.drain])
    return "; ".join(parts)


def _tell(name: str, before: NodeStatus | None, status: NodeStatus, draft: Draft) -> None:
    if status.state == "down":
        draft.notice("node_down", "error", f"node {name} is down: {status.reason}")
    else:
        draft.end_notice("node_down")
    if status.state == "alive" and (SERVICE, "mass_loss", "fleet") in draft.state.tables[subjects.NOTICE]:
        draft.change(subjects.NOTICE, (SERVICE, "mass_loss", "fleet"), None)


def _decommission(state: State, name: str, draft: Draft) -> list[Decision]:
    """An operator has deleted the node: its assignments and instances go, and its status."""
    for key in sorted(state.replicas_on.get(name, ())):
        if draft.full:
            break
        draft.change(subjects.ASSIGNMENT, key, None)
        if key in state.tables[subjects.INSTANCE]:
            draft.change(subjects.INSTANCE, key, None)
    if not draft.full:
        if (name,) in state.tables[subjects.NODE_STATUS]:
            draft.change(subjects.NODE_STATUS, (name,), None)
        for kind in (subjects.DECISION, subjects.NOTICE):
            for about in ("node", "node_down"):
                if (SERVICE, about, name) in state.tables[kind]:
                    draft.change(kind, (SERVICE, about, name), None)
    if not draft.changes:
        return []
    draft.because(state.sequence_of(subjects.NODE, (name,)))
    return [Decision("node", (name,), "decommissioned", tuple(draft.changes), cause=draft.cause, explain=False)]


def node_count(state: State) -> int:
    return sum(version.record is not None for version in state.tables[subjects.NODE].values())


def decide_fleet(state: State, now: datetime) -> tuple[list[Decision], list[Draft]]:
    """The interval of the heartbeats, by the number of nodes; it falls again only well below the limit."""
    draft = Draft(state, "fleet", ("fleet",), now)
    count = node_count(state)
    if not count:
        return [], [draft]
    before = state.get(subjects.FLEET, (), Fleet)
    interval = next((seconds for limit, seconds in INTERVALS if count <= limit), 20)
    if before is not None and interval < before.heartbeat_interval_seconds:
        interval = next((seconds for limit, seconds in INTERVALS if count <= 0.9 * limit), 20)
        interval = min(interval, before.heartbeat_interval_seconds)
    fleet = Fleet(heartbeat_interval_seconds=interval)
    if fleet != before:
        draft.change(subjects.FLEET, (), fleet)
        draft.outcomes.append(f"{count} nodes send a heartbeat every {interval} s")
    decision = draft.decision()
    return ([decision] if decision is not None else []), [draft]
