"""Snapshots of volumes: one run for each slot of the schedule, and what is kept.

A slot is due once, whatever time it comes to in a zone that changes its clocks. Slots that were missed, for a pause, for
an edit, or for longer than the starting deadline, are told of once and not made up for; otherwise the latest of them is
run. A run that is stuck times out and does not hold the next; one that failed is tried again, for the same slot.

Kept are the newest `keep_last` and the newest of each of `keep_daily` days in the schedule's zone, each with the reason;
the newest complete one is never dropped. What goes is named in a prune, and forgotten when the agent has deleted it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

from services.scheduler.draft import Draft
from services.scheduler.state import State
from shared import subjects
from shared.model.snapshot import SnapshotOrder, SnapshotPrune, SnapshotReport
from shared.model.volume import MACROS, SnapshotPolicy, Volume, VolumeStatus
from shared.service import Decision
from shared.subjects import Key

KEEP_LAST = 7
MAX_ATTEMPTS = 3
RETRY_SECONDS = 60
MAX_ORDERS = 400


def decide_volume(state: State, key: Key, now: datetime) -> tuple[list[Decision], list[Draft]]:
    """The decision about the snapshots of one volume."""
    draft = Draft(state, "volume", key, now)
    status = state.get(subjects.VOLUME_STATUS, key, VolumeStatus)
    version = state.tables[subjects.VOLUME].get(key)
    if status is None:
        return [], [draft]
    orders = _orders(state, key)
    volume = version.record if version is not None and isinstance(version.record, Volume) else None
    policy = volume.snapshot_policy if volume is not None and volume.snapshot_policy is not None else SnapshotPolicy()
    orders = _follow_reports(key, orders, draft)
    if volume is not None and version is not None and not _running(orders):
        _request(key, volume, status, orders, policy, draft)
        if not draft.changes:
            _scheduled(key, version.at, status, policy, orders, draft)
    _retain(key, status.node, orders, policy, draft)
    decision = draft.decision()
    return ([decision] if decision is not None else []), [draft]


def _orders(state: State, key: Key) -> dict[Key, SnapshotOrder]:
    found = {}
    for name in sorted(state.orders_of.get(key, ())):
        order = state.get(subjects.SNAPSHOT_ORDER, name, SnapshotOrder)
        if order is not None:
            found[name] = order
    return found


def _running(orders: Mapping[Key, SnapshotOrder]) -> bool:
    return any(order.state == "running" for order in orders.values())


def _follow_reports(key: Key, orders: dict[Key, SnapshotOrder], draft: Draft) -> dict[Key, SnapshotOrder]:
    """The orders with what was reported of them; a run past its deadline has timed out."""
    after = dict(orders)
    for name, order in orders.items():
        if order.state != "running":
            continue
        report = draft.state.get(subjects.SNAPSHOT_REPORT, name, SnapshotReport)
        if report is not None and report.state != "running":
            update = {"state": report.state, "error": report.error, "finished_at": draft.now}
        elif draft.now >= order.deadline:
            update = {"state": "timed_out", "error": "not done by its deadline", "finished_at": draft.now}
        else:
            draft.wake(order.deadline)
            continue
        after[name] = order.model_copy(update=update)
        draft.change(subjects.SNAPSHOT_ORDER, name, after[name])
        draft.outcomes.append(f"{name[-1]}: {update['state']}" + (f": {update['error']}" if update["error"] else ""))
        if update["state"] == "complete":
            draft.end_notice("snapshot_failed")
        else:
            draft.notice("snapshot_failed", "error", f"snapshot {name[-1]} of {'/'.join(key)}: {update['error']}")
    return after


def _request(
    key: Key,
    volume: Volume,
    status: VolumeStatus,
    orders: Mapping[Key, SnapshotOrder],
    policy: SnapshotPolicy,
    draft: Draft,
) -> None:
    """One now, for a request that has not been served."""
    if volume.snapshot_request is None or volume.snapshot_request == status.request_done:
        return
    _order(key, status.node, draft.now, f"r-{volume.snapshot_request}", 1, policy, draft, volume.snapshot_request)
    _remember(key, status, draft, request_done=volume.snapshot_request)


def _scheduled(
    key: Key,
    edited_at: datetime,
    status: VolumeStatus,
    policy: SnapshotPolicy,
    orders: Mapping[Key, SnapshotOrder],
    draft: Draft,
) -> None:
    if not policy.schedule or policy.paused:
        return
    if _retry(key, status, policy, orders, draft):
        return
    done = status.slots_until
    slot = latest_slot(policy, draft.now)
    if slot is not None and slot > (done or edited_at):
        late = draft.now - slot
        if slot <= edited_at or late > timedelta(seconds=policy.starting_deadline_seconds):
            message = f"the slot {slot.isoformat()} of {'/'.join(key)} was missed"
            draft.notice("snapshot_missed", "warning", message)
            draft.outcomes.append(message)
        else:
            _order(key, status.node, slot, f"s-{_stamp(slot)}", 1, policy, draft)
        _remember(key, status, draft, slots_until=slot)
        return
    if (following := next_slot(policy, draft.now)) is not None:
        draft.wake(following)


def _retry(
    key: Key, status: VolumeStatus, policy: SnapshotPolicy, orders: Mapping[Key, SnapshotOrder], draft: Draft
) -> bool:
    """Try the newest slot again where its run failed. True = it has its turn, now or soon."""
    of_slots = [order for order in orders.values() if not order.request]
    newest = max(of_slots, key=lambda order: (order.slot, order.attempt), default=None)
    if newest is None or newest.state not in ("failed", "timed_out") or newest.attempt >= MAX_ATTEMPTS:
        return False
    assert newest.finished_at is not None
    at = newest.finished_at + timedelta(seconds=RETRY_SECONDS * 2 ** (newest.attempt - 1))
    if (following := next_slot(policy, newest.slot)) is not None and following <= draft.now:
        return False  # a newer slot is due: it takes the place of the retry
    if draft.now < at:
        draft.wake(at)
        return True
    attempt = newest.attempt + 1
    _order(key, status.node, newest.slot, f"s-{_stamp(newest.slot)}-{attempt}", attempt, policy, draft)
    return True


def _order(
    key: Key,
    node: str,
    slot: datetime,
    id: str,
    attempt: int,
    policy: SnapshotPolicy,
    draft: Draft,
    request: str = "",
) -> None:
    order = SnapshotOrder(
        slot=slot, request=request, attempt=attempt, deadline=draft.now + timedelta(seconds=policy.timeout_seconds)
    )
    draft.change(subjects.SNAPSHOT_ORDER, (node, *key, id), order)
    draft.outcomes.append(f"order snapshot {id} on {node}")
    if not request:
        draft.end_notice("snapshot_missed")


def _remember(key: Key, status: VolumeStatus, draft: Draft, **update: object) -> None:
    draft.change(subjects.VOLUME_STATUS, key, status.model_copy(update=update))


def _retain(key: Key, node: str, orders: Mapping[Key, SnapshotOrder], policy: SnapshotPolicy, draft: Draft) -> None:
    """Say of each complete one why it is kept; prune the rest, and the failed ones that a newer complete one outdates."""
    complete = sorted(((order.slot, name) for name, order in orders.items() if order.state == "complete"), reverse=True)
    reasons = keep_reasons([slot for slot, _ in complete], policy)
    prune: dict[str, list[str]] = {}
    for (_, name), why in zip(complete, reasons, strict=True):
        if not why:
            prune.setdefault(name[0], []).append(name[-1])
        elif why != orders[name].keep_reasons:
            _replace_order(name, orders[name].model_copy(update={"keep_reasons": why}), draft)
    newest = complete[0][0] if complete else None
    for name, order in orders.items():
        if order.state in ("failed", "timed_out") and newest is not None and order.slot <= newest:
            prune.setdefault(name[0], []).append(name[-1])
    _prune(key, prune, orders, draft)


def _replace_order(name: Key, order: SnapshotOrder, draft: Draft) -> None:
    """Write an order once a pass, with the last word on it."""
    draft.changes = [
        change for change in draft.changes if not (change.kind is subjects.SNAPSHOT_ORDER and change.key == name)
    ]
    draft.change(subjects.SNAPSHOT_ORDER, name, order)
    draft.outcomes.append(f"keep {name[-1]}: {', '.join(order.keep_reasons)}")


def keep_reasons(slots: list[datetime], policy: SnapshotPolicy) -> list[tuple[str, ...]]:
    """For each slot, newest first, why it is kept; empty = it goes."""
    keep_last = policy.keep_last or KEEP_LAST
    zone = ZoneInfo(policy.timezone)
    days: list[str] = []
    found = []
    for index, slot in enumerate(slots):
        why = [f"one of the last {keep_last}"] if index < keep_last else []
        day = slot.astimezone(zone).date().isoformat()
        if day not in days:
            days.append(day)
            if len(days) <= policy.keep_daily:
                why.append(f"the last of {day}")
        if index == 0 and not why:
            why.append("the newest")
        found.append(tuple(why))
    return found


def _prune(key: Key, prune: Mapping[str, list[str]], orders: Mapping[Key, SnapshotOrder], draft: Draft) -> None:
    """Name what goes; forget an order, and its place in the prune, when the agent has deleted its report."""
    state = draft.state
    nodes = prune.keys() | {name[0] for name in state.prunes_of.get(key, ())}
    for node in sorted(nodes):
        before = state.get(subjects.SNAPSHOT_PRUNE, (node, *key), SnapshotPrune)
        named = set(before.ids) if before is not None else set()
        wanted = sorted(prune.get(node, []))[:MAX_ORDERS]
        done = [id for id in wanted if id in named and not _reported(state, (node, *key, id))]
        for id in done:
            draft.change(subjects.SNAPSHOT_ORDER, (node, *key, id), None)
            draft.outcomes.append(f"forget {id}")
        ids = tuple(id for id in wanted if id not in done)
        if ids != (before.ids if before is not None else ()):
            draft.change(subjects.SNAPSHOT_PRUNE, (node, *key), SnapshotPrune(ids=ids) if ids else None)
            draft.outcomes.append(f"prune {', '.join(ids)}" if ids else "nothing left to prune")


def _reported(state: State, name: Key) -> bool:
    return state.get(subjects.SNAPSHOT_REPORT, name, SnapshotReport) is not None


def latest_slot(policy: SnapshotPolicy, now: datetime) -> datetime | None:
    """The last slot at or before `now`."""
    after = now.astimezone(ZoneInfo(policy.timezone)).replace(microsecond=0) + timedelta(seconds=1)
    return _first(policy.schedule, after, reverse=True)


def next_slot(policy: SnapshotPolicy, after: datetime) -> datetime | None:
    """The first slot after a time."""
    return _first(policy.schedule, after.astimezone(ZoneInfo(policy.timezone)), reverse=False)


def _first(schedule: str, start: datetime, *, reverse: bool) -> datetime | None:
    found = next(iter(CronSim(MACROS.get(schedule, schedule), start, reverse=reverse)), None)
    return found.astimezone(ZoneInfo("UTC")) if found is not None else None


def _stamp(slot: datetime) -> str:
    return slot.astimezone(ZoneInfo("UTC")).strftime("%Y%m%dt%H%M%Sz")
