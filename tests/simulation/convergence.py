"""Liveness: once nothing goes wrong any more, everything comes to where the users want it.

`unmet` names the first thing that is not there yet, empty when all is: so a seed that does not converge says why.
"""

from collections.abc import Sequence
from typing import Any

from shared.errors import InvalidRecord, InvalidSubject
from shared.invariants.view import View
from shared.model.assignment import Assignment
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment
from shared.model.node import Node, NodeControl, NodeStatus
from shared.model.release import DeployRequest, Release
from shared.model.volume import Volume, VolumeStatus
from shared.runtime import encode
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    DEPLOY,
    DEPLOYMENT,
    ENVIRONMENT,
    KINDS,
    NODE,
    NODE_CONTROL,
    NODE_STATUS,
    RELEASE,
    ROUTE_KINDS,
    ROUTE_MANIFEST,
    VOLUME,
    VOLUME_STATUS,
    Key,
    Owner,
)

from .agents import Agent
from .interpreter import Instance
from .log import Log
from .proxies import Proxy
from .wire import Stored


class Convergence:
    def __init__(
        self,
        log: Log,
        view: View,
        instances: Sequence[Instance[Any]],
        agents: Sequence[Agent],
        proxies: Sequence[Proxy],
    ) -> None:
        self._log = log
        self._view = view
        self._instances = instances
        self._agents = agents
        self._proxies = proxies
        self._newest: dict[str, Stored] = {}
        log.watch(self._remember)

    def unmet(self) -> str:
        """What is still to come."""
        return (
            self._deployments()
            or self._nodes()
            or self._replicas()
            or self._records()
            or self._services()
            or self._routes()
        )

    def _deployments(self) -> str:
        """6: every deployment is terminal."""
        for key, deployment in self._view.all(DEPLOYMENT, Deployment).items():
            if not deployment.terminal:
                return f"deployment {'/'.join(key)} is {deployment.phase} until {deployment.deadline}"
        for key, request in self._view.all(DEPLOY, DeployRequest).items():
            active = self._view.get(ACTIVE, key[:3], ActiveRelease) or ActiveRelease()
            known = self._view.get(DEPLOYMENT, key, Deployment) is not None or key[3] <= active.request_floor
            if not known and self._view.get(ENVIRONMENT, key[:3], Environment) is not None:
                return f"request {'/'.join(key)} for release {request.version} has no deployment"
        return ""

    def _nodes(self) -> str:
        for agent in self._agents:
            if self._view.get(NODE, (agent.name,), Node) is None:
                continue
            status = self._view.get(NODE_STATUS, (agent.name,), NodeStatus)
            control = self._view.get(NODE_CONTROL, (agent.name,), NodeControl) or NodeControl()
            if status is None or status.state != "alive":
                return f"node {agent.name} is {status.state if status else 'without status'}"
            if control.drain and status.drain != "drained" and not self._stuck(agent.name):
                return f"node {agent.name} is {status.drain}, not drained"
            if not control.drain and status.drain != "none":
                return f"node {agent.name} is {status.drain}, although nobody drains it"
        return ""

    def _stuck(self, node: str) -> bool:
        """Whether a drain has to wait: some replica on the node has nowhere else to go, or may not be stopped."""
        return any(
            key[0] == node and (assignment.run.volumes or not self._room(_environment(assignment), assignment.release))
            for key, assignment in self._view.all(ASSIGNMENT, Assignment).items()
        )

    def _replicas(self) -> str:
        """7: as many healthy replicas as desired, or nowhere to put them; none that nobody wants."""
        environments = {key[:3] for key in self._view.all(ACTIVE, ActiveRelease)}
        environments |= {_environment(a) for a in self._view.all(ASSIGNMENT, Assignment).values()}
        for environment in sorted(environments):
            if missing := self._replicas_of(environment):
                return missing
        return ""

    def _replicas_of(self, environment: Key) -> str:
        active = self._view.get(ACTIVE, environment, ActiveRelease)
        serving = active.deployment if active is not None and active.version else ""
        desired = self._view.desired(environment)
        mine = self._view.replicas(environment)
        name = "/".join(environment)
        kept = [key for key, a in mine.items() if a.deployment == serving and a.desired == "run"]
        healthy = [key for key in kept if self._view.healthy(key)]
        if len(healthy) < desired and active is not None and self._room(environment, active.version):
            return f"{name} has {len(healthy)} healthy replicas, {desired} are wanted, and there is room"
        leaving = [key for key in mine if key not in kept and mine[key].deployment]
        if leaving:
            return f"{name}: {leaving[0][1]} on {leaving[0][0]} is still there, {mine[leaving[0]].desired}"
        if len(kept) > desired and len(healthy) > desired:
            return f"{name} has {len(kept)} replicas, {desired} are wanted"
        return ""

    def _room(self, environment: Key, version: str) -> bool:
        """Whether some node would take one more replica of a release, by a reading of the rules of our own."""
        release = self._view.get(RELEASE, (*environment, version), Release)
        if release is None:
            return False
        service, everything = release.service, self._view.all(ASSIGNMENT, Assignment)
        need = service.resources.effective()
        for (node,), record in self._view.all(NODE, Node).items():
            control = self._view.get(NODE_CONTROL, (node,), NodeControl) or NodeControl()
            here = [a for key, a in everything.items() if key[0] == node and not self._view.gone(key)]
            cpu = need.cpu_millis + sum(a.resources.effective().cpu_millis for a in here)
            memory = need.memory_mb + sum(a.resources.effective().memory_mb for a in here)
            if control.drain or not control.schedulable or self._view.lost(node):
                continue
            if service.stateful and self._pin(environment) not in ("", node):
                continue
            if any(record.labels.get(label) != value for label, value in service.placement.constraints.items()):
                continue
            if service.placement.distinct_nodes and any(_environment(a) == environment for a in here):
                continue
            if cpu <= record.capacity.cpu_millis and memory <= record.capacity.memory_mb:
                return True
        return False

    def _pin(self, environment: Key) -> str:
        wanted = self._view.get(VOLUME, (*environment, "data"), Volume)
        status = self._view.get(VOLUME_STATUS, (*environment, "data"), VolumeStatus)
        return (wanted.node if wanted is not None else None) or (status.node if status is not None else "")

    def _records(self) -> str:
        """11: what a user can write can be read, on every subject, and is what a user wrote last that can be read."""
        for kind in (kind for kind in KINDS if kind.owner is Owner.USERS):
            for sequence in self._log.last_per_subject([kind]):
                stored = self._log.get(sequence)
                assert stored is not None
                try:
                    self._log.read(stored)
                except InvalidRecord as error:
                    return f"unreadable: {error}"
                except InvalidSubject:
                    continue
                if problem := self._not_the_newest(stored):
                    return problem
        return ""

    def _not_the_newest(self, last: Stored) -> str:
        """Whether something else stands than the newest version that can be read and is no repetition."""
        wanted = self._newest.get(last.subject)
        if last.body != (wanted.body if wanted is not None else b""):
            return f"{last.subject} at {last.sequence} is not the newest version that can be read"
        return ""

    def _remember(self, stored: Sequence[Stored]) -> None:
        """The log may be trimmed: what was repeated is then gone."""
        for message in stored:
            users = message.kind is not None and message.kind.owner is Owner.USERS
            if users and encode.RESTORES not in message.headers and self._reads(message):
                self._newest[message.subject] = message

    def _reads(self, stored: Stored) -> bool:
        try:
            self._log.read(stored)
        except (InvalidRecord, InvalidSubject):
            return False
        return True

    def _services(self) -> str:
        """Each service has one leader, who has nothing to do."""
        for name in sorted({instance.service.name for instance in self._instances}):
            leaders = [i for i in self._instances if i.service.name == name and i.leading]
            if len(leaders) != 1:
                return f"{name} has {len(leaders)} leaders"
            if leaders[0].busy:
                return f"{name} is still deciding"
        return ""

    def _routes(self) -> str:
        """9: every proxy serves what a fresh load gives."""
        manifest = self._log.current(ROUTE_MANIFEST).get(())
        if manifest is None:
            return ""
        whole = {kind.subject(*key): kind for kind in ROUTE_KINDS for key in self._log.current(kind)}
        for proxy in self._proxies:
            if not proxy.up:
                continue
            if set(proxy.serving) != set(whole):
                return f"{proxy.name} serves {len(proxy.serving)} route records, a fresh load gives {len(whole)}"
            for subject, body in proxy.serving.items():
                if self._log.versions_of(subject)[-1].body != body:
                    return f"{proxy.name} serves another {subject} than a fresh load gives"
        return ""


def _environment(assignment: Assignment) -> Key:
    return tuple(assignment.workload.key.split("/"))
