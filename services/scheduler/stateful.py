"""Stateful services: exactly one replica, and its volumes on one node.

A replica with state is replaced in the other order: drain, stop, `stopped` seen, start. Nothing is started while any
replica of the environment may still be running somewhere, so two never share a volume. On a node that is down it waits
for the node; only an operator who declares the node lost (`Volume.lost_node`) lets it go on without the confirmation.

The pin is chosen once, by a placement that passes every filter, for all volumes of the environment; it moves only where a
volume asks for another node. Each start gets a `volume_epoch` above all earlier ones; an agent refuses a lower one.
"""

from collections.abc import Sequence

from services.scheduler.draft import Draft
from services.scheduler.replace import move, place_one
from services.scheduler.replicas import Replica, must_leave
from services.scheduler.state import State
from services.scheduler.workload import Template
from shared import subjects
from shared.model.node import NodeControl
from shared.model.volume import Volume, VolumeStatus
from shared.subjects import Key


def volumes_of(state: State, key: Key) -> dict[str, VolumeStatus]:
    """The pinned volumes of an environment, by name."""
    found = {}
    for volume in state.volumes_of.get(key, ()):
        status = state.get(subjects.VOLUME_STATUS, volume, VolumeStatus)
        if status is not None:
            found[volume[3]] = status
    return dict(sorted(found.items()))


def pin_of(state: State, key: Key) -> str | None:
    """The node that the volumes are on; None before the first start."""
    return next((status.node for status in volumes_of(state, key).values()), None)


def wanted_pin(state: State, key: Key, template: Template) -> str | None:
    """The node that a volume asks for, the first by name; else the pin."""
    for name in sorted(template.volumes):
        volume = state.get(subjects.VOLUME, (*key, name), Volume)
        if volume is not None and volume.node is not None:
            return volume.node
    return pin_of(state, key)


def _declared_lost(state: State, key: Key, node: str) -> bool:
    records = [state.get(subjects.VOLUME, name, Volume) for name in state.volumes_of.get(key, ())]
    return any(record is not None and record.lost_node == node for record in records)


def blockers(members: Sequence[Replica], draft: Draft, key: Key) -> list[Replica]:
    """The replicas that may still be running somewhere: nothing is started before they are gone."""
    return [
        item for item in members if not item.gone and not (item.lost and _declared_lost(draft.state, key, item.node))
    ]


def converge_one(
    key: Key, members: Sequence[Replica], deployment: str, wanted: int, template: Template | None, draft: Draft
) -> None:
    """Keep the one replica of a set, `members` being all replicas of the environment."""
    follow_pins(key, draft)
    running = [
        item for item in members if item.assignment.deployment == deployment and item.assignment.desired == "run"
    ]
    blocked = blockers(members, draft, key)
    for item in running:
        if why := _has_to_stop(key, item, wanted, template, draft):
            move(item, "drain" if item.live else "stop", why, draft)
    if not any(item.node_drains for item in running):
        draft.end_notice("drain_held")
    keeps = [item for item in running if item in blocked]
    moving = any(change.kind is not subjects.NOTICE for change in draft.changes)
    if wanted and not keeps and not moving:
        gone = next((item for item in running if item not in blocked), None)
        start_one(key, blocked, gone, deployment, template, draft)


def _has_to_stop(key: Key, item: Replica, wanted: int, template: Template | None, draft: Draft) -> str:
    if not wanted:
        return "not wanted any more"
    if item.gone:
        return ""  # its successor stops it, in one commit
    if item.lost:
        if _declared_lost(draft.state, key, item.node):
            return f"node {item.node} is declared lost"
        draft.reasons["held"] = f"node {item.node} is down: it waits for the node and its volumes"
        return ""
    if template is not None and (pin := wanted_pin(draft.state, key, template)) not in (None, item.node):
        return f"its volumes move to {pin}"
    why = must_leave(item, draft)
    control = draft.state.get(subjects.NODE_CONTROL, (item.node,), NodeControl)
    if why and item.node_drains and control is not None and not control.stop_stateful:
        draft.reasons["held"] = f"{why}, and holds a stateful replica: stop_stateful would stop it"
        draft.notice("drain_held", "warning", f"{'/'.join(key)} holds the drain of {item.node}: it is stateful")
        return ""
    return why


def start_one(
    key: Key, blocked: Sequence[Replica], old: Replica | None, deployment: str, template: Template | None, draft: Draft
) -> bool:
    """Start the one replica on the pinned node, with a new epoch for its volumes. False = not yet, with the reason."""
    if template is None:
        return False
    if blocked:
        draft.reasons["held"] = f"{', '.join(item.id for item in blocked)} may still be running"
        return False
    pin = wanted_pin(draft.state, key, template) if template.volumes else None
    name, node = place_one(template, pin, old, deployment, draft)
    if name is None or node is None:
        return False
    for volume in template.volumes:
        status = VolumeStatus(node=node, volume_epoch=draft.incarnation, holder=name)
        draft.change(subjects.VOLUME_STATUS, (*key, volume), status)
    if old is not None:
        move(old, "stop", old.fate, draft)
    return True


def follow_pins(key: Key, draft: Draft) -> None:
    """Tell when the node of a volume is lost and when it is back. A node that drains is not lost."""
    for name, status in volumes_of(draft.state, key).items():
        lost = draft.state.node_gone(status.node)
        if lost == (status.state == "node_lost"):
            continue
        state = "node_lost" if lost else "active"
        draft.change(subjects.VOLUME_STATUS, (*key, name), status.model_copy(update={"state": state}))
        draft.outcomes.append(f"volume {name}: node {status.node} is {'lost' if lost else 'back'}")
        if lost:
            draft.notice(
                "volume_node_lost", "warning", f"node {status.node} with the volumes of {'/'.join(key)} is down"
            )
        else:
            draft.end_notice("volume_node_lost")
