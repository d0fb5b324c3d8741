"""2: reservations on a node never exceed its capacity, draining and stopping replicas counted.

A capacity that shrank is judged as the decision knew it.
"""

from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.node import Node
from shared.service import Version
from shared.subjects import NODE


def reservations_fit(moment: Moment) -> Iterator[Breach]:
    for version in {version.key[0]: version for version in moment.added}.values():
        yield from _fits(moment, version)


def _fits(moment: Moment, version: Version) -> Iterator[Breach]:
    view, node = moment.view, version.key[0]
    known = [view.get(NODE, (node,), Node, at) for at in (moment.read(version), version.sequence)]
    capacities = [record.capacity for record in known if record is not None]
    if not capacities:
        yield Breach("2", version.sequence, subject_of(version), f"is placed on {node}, which is not registered")
        return
    reserved = [a.resources.effective() for key, a in view.on_node(node).items() if not view.gone(key)]
    for what in ("cpu_millis", "memory_mb"):
        total = sum(getattr(each, what) for each in reserved)
        room = [getattr(each, what) for each in capacities]
        if all(room) and total > max(room):  # 0 is unlimited
            detail = f"{node} has {max(room)} {what}, reserved are {total}"
            yield Breach("2", version.sequence, subject_of(version), detail)
