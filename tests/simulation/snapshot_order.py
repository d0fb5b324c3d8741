"""What must come of snapshots: none is under way for ever, none is left that was to go, none is lost that is kept."""

from collections.abc import Sequence

from shared.model.snapshot import SnapshotOrder
from shared.subjects import SNAPSHOT_ORDER, SNAPSHOT_PRUNE, SNAPSHOT_REPORT

from .agents import Agent
from .log import Log


def unmet_snapshots(log: Log, agents: Sequence[Agent]) -> str:
    orders = log.current(SNAPSHOT_ORDER)
    files = {key for agent in agents for key in agent.snapshots.files}
    for key, order in orders.items():
        assert isinstance(order, SnapshotOrder)
        if order.state == "running":
            return f"snapshot {'/'.join(key)} runs until {order.deadline}"
        if order.state == "complete" and key not in files:
            return f"snapshot {'/'.join(key)} is complete, and nowhere"
    if prunes := log.current(SNAPSHOT_PRUNE):
        return f"prunes are left: {sorted(prunes)}"
    if left := log.current(SNAPSHOT_REPORT).keys() - orders.keys():
        return f"reports without an order are left: {sorted(left)}"
    return ""
