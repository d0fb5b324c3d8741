"""Whether there is room for one more replica, by a reading of the rules of our own."""

from shared.invariants.view import View
from shared.model.assignment import Assignment
from shared.model.environment import Placement
from shared.model.node import Node, NodeControl
from shared.model.release import Release
from shared.model.run import Resources
from shared.model.volume import Volume, VolumeStatus
from shared.subjects import ASSIGNMENT, NODE, NODE_CONTROL, RELEASE, VOLUME, VOLUME_STATUS, Key

ANYWHERE = Placement()


class Room:
    def __init__(self, view: View) -> None:
        self._view = view

    def for_release(self, environment: Key, version: str) -> bool:
        release = self._view.get(RELEASE, (*environment, version), Release)
        if release is None:
            return False
        service = release.service
        pin = self._pin(environment) if service.stateful else ""
        return self._somewhere(service.resources, environment, service.placement, pin)

    def for_another(self, assignment: Assignment) -> bool:
        """For one more of the same."""
        key = tuple(assignment.workload.key.split("/"))
        if assignment.workload.kind == "environment":
            return self.for_release(key, assignment.release)
        return self.for_resources(assignment.resources)

    def for_resources(self, resources: Resources) -> bool:
        return self._somewhere(resources, (), ANYWHERE, "")

    def _somewhere(self, resources: Resources, environment: Key, placement: Placement, pin: str) -> bool:
        need, everything = resources.effective(), self._view.all(ASSIGNMENT, Assignment)
        name = "/".join(environment)
        for (node,), record in self._view.all(NODE, Node).items():
            control = self._view.get(NODE_CONTROL, (node,), NodeControl) or NodeControl()
            here = [a for key, a in everything.items() if key[0] == node and not self._view.gone(key)]
            cpu = need.cpu_millis + sum(a.resources.effective().cpu_millis for a in here)
            memory = need.memory_mb + sum(a.resources.effective().memory_mb for a in here)
            if control.drain or not control.schedulable or self._view.lost(node) or pin not in ("", node):
                continue
            if any(record.labels.get(label) != value for label, value in placement.constraints.items()):
                continue
            if placement.distinct_nodes and any(a.workload.key == name for a in here):
                continue
            if cpu <= record.capacity.cpu_millis and memory <= record.capacity.memory_mb:
                return True
        return False

    def _pin(self, environment: Key) -> str:
        wanted = self._view.get(VOLUME, (*environment, "data"), Volume)
        status = self._view.get(VOLUME_STATUS, (*environment, "data"), VolumeStatus)
        return (wanted.node if wanted is not None else None) or (status.node if status is not None else "")
