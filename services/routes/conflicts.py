"""Conflicts: a notice for everyone who claims a host or a public port that another has, deleted when that ends.

A route that does not fit in a message gets its notice in the same way.

A notice is raised once: while the conflict lasts its time stays, even if the one who has the host changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from services.routes.hosts import Loss
from services.routes.world import SERVICE, Env, Item, State
from services.routes.written import notice_key, subject_of, too_large_key
from shared import codec, subjects
from shared.model.service import Notice
from shared.service import Change, Decision
from shared.subjects import DECISION, NOTICE, ROUTE_HOST, Key

Losers = Mapping[Key, tuple[str, dict[str, Any]]]
"""For each notice, its message and fields."""

_NOBODY: Losers = MappingProxyType({})


class Dispute(NamedTuple):
    """What is claimed more than once. Without losers it is not in dispute."""

    item: Item
    losers: Losers = _NOBODY


def over_host(item: Item, losses: Sequence[Loss]) -> Dispute:
    if not losses:
        return Dispute(item)
    hostname = subjects.hostname(item[1])
    losers: dict[Key, tuple[str, dict[str, Any]]] = {}
    for loss in losses:
        what = "domain" if loss.loser.domain else "environment"
        name, keeper = "/".join(loss.loser.by), "/".join(loss.winner.by)
        message = f"{what} {name} does not get {hostname}{loss.loser.prefix}: {keeper} has it"
        fields = {"hostname": hostname, "path_prefix": loss.loser.prefix, "claimed_by": name, "kept_by": keeper}
        losers[notice_key(item, loss.loser.by)] = (message, fields)
    return Dispute(item, losers)


def over_port(item: Item, losers: Iterable[Env], winner: Env | None) -> Dispute:
    port, keeper = item[1][0], "/".join(winner or ())
    found: dict[Key, tuple[str, dict[str, Any]]] = {}
    for env in losers:
        name = "/".join(env)
        message = f"environment {name} does not get public port {port}: {keeper} has it"
        found[notice_key(item, env)] = (message, {"port": int(port), "claimed_by": name, "kept_by": keeper})
    return Dispute(item, found)


def too_large(dispute: Dispute) -> Dispute:
    subject = subject_of(dispute.item)
    message = f"{subject} would be larger than {codec.MAX_BODY_BYTES} bytes; it stays as it was"
    return Dispute(dispute.item, {**dispute.losers, too_large_key(dispute.item): (message, {"subject": subject})})


def in_order(state: State, dispute: Dispute) -> bool:
    """Whether the notices that are raised are those that should be."""
    raised = state.notices.get(dispute.item)
    if not raised or not dispute.losers:
        return not raised and not dispute.losers
    return raised.keys() == dispute.losers.keys() and all(
        (raised[key].message, raised[key].fields) == said for key, said in dispute.losers.items()
    )


def decisions(state: State, disputes: Iterable[Dispute], now: datetime, room: int) -> tuple[list[Decision], bool]:
    """What brings the notices in order, in at most `room` messages; and whether more is left."""
    found: list[Decision] = []
    for dispute in disputes:
        if in_order(state, dispute):
            continue
        changes = _changes(state, dispute, now)
        if room < 2:
            return found, True
        cut = len(changes) > room - 1
        found.append(_decision(state, dispute, changes[: room - 1], ended=not dispute.losers and not cut))
        room -= found[-1].size
        if cut:
            return found, True
    return found, False


def _changes(state: State, dispute: Dispute, now: datetime) -> list[Change]:
    raised = state.notices.get(dispute.item, {})
    changes = [Change(NOTICE, key, None) for key in sorted(raised.keys() - dispute.losers.keys())]
    for key, (message, fields) in sorted(dispute.losers.items()):
        before = raised.get(key)
        notice = Notice(severity="warning", message=message, at=before.at if before else now, fields=fields)
        if notice != before:
            changes.append(Change(NOTICE, key, notice))
    return changes


def _decision(state: State, dispute: Dispute, changes: list[Change], *, ended: bool) -> Decision:
    kind, key = dispute.item
    about = kind.removeprefix("route_")
    name = subjects.hostname(key) if kind == ROUTE_HOST.name else " ".join((about, "/".join(key)))
    if ended:
        explanation = Change(DECISION, (SERVICE, about, *key), None)
        return Decision(about, key, f"{name}: nothing is in the way any more", (*changes, explanation), explain=False)
    reasons = {
        "messages": [message for message, _ in list(dispute.losers.values())[:20]],
        "notices": len(dispute.losers),
    }
    return Decision(about, key, f"{name}: not everything that was asked for is served", tuple(changes), reasons)
