"""Liveness: once nothing goes wrong any more, everything comes to where the users want it.

`unmet` names the first thing that is not there yet, empty when all is: so a seed that does not converge says why.
"""

from collections.abc import Sequence
from typing import Any

from shared.errors import InvalidRecord, InvalidSubject
from shared.invariants.view import View
from shared.model.assignment import Assignment
from shared.model.build import BuildPool
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment
from shared.model.node import Node, NodeControl, NodeStatus
from shared.model.release import DeployRequest
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
    ROUTE_KINDS,
    ROUTE_MANIFEST,
    Key,
    Owner,
)

from .agents import Agent
from .build_order import unmet_builds
from .build_workers import Workers
from .interpreter import Instance
from .log import Log
from .mix import Mix
from .pool_order import unmet_placements, unmet_workers
from .proxies import Proxy
from .room import Room
from .scaling_order import unmet_scaling
from .snapshot_order import unmet_snapshots
from .visitors import Visitors
from .wire import Stored


class Convergence:
    def __init__(
        self,
        log: Log,
        view: View,
        instances: Sequence[Instance[Any]],
        agents: Sequence[Agent],
        proxies: Sequence[Proxy],
        visitors: Visitors,
        mix: Mix,
    ) -> None:
        self._log = log
        self._view = view
        self._visitors = visitors
        self._mix = mix
        self._builds: tuple[BuildPool, Workers] | None = None
        self._instances = instances
        self._agents = agents
        self._proxies = proxies
        self._newest: dict[str, Stored] = {}
        self._room = Room(view)
        log.watch(self._remember)

    def expect_builds(self, pool: BuildPool, workers: Workers) -> None:
        self._builds = pool, workers

    def unmet(self) -> str:
        """What is still to come."""
        return (
            self._deployments()
            or self._nodes()
            or self._replicas()
            or self._stories()
            or self._records()
            or self._services()
            or self._routes()
        )

    def _stories(self) -> str:
        if self._builds is not None and (unmet := next(unmet_builds(self._log, *self._builds), "")):
            return unmet
        if self._mix.functions and (
            unmet := unmet_placements(self._log) or unmet_workers(self._log, self._view, self._room)
        ):
            return unmet
        if self._mix.scaling and (unmet := unmet_scaling(self._view, self._visitors)):
            return unmet
        return unmet_snapshots(self._log, self._agents) if self._mix.snapshots else ""

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
            key[0] == node and (assignment.run.volumes or not self._room.for_another(assignment))
            for key, assignment in self._view.all(ASSIGNMENT, Assignment).items()
        )

    def _replicas(self) -> str:
        """7: as many healthy replicas as desired, or nowhere to put them; none that nobody wants."""
        environments = {key[:3] for key in self._view.all(ACTIVE, ActiveRelease)}
        assignments = self._view.all(ASSIGNMENT, Assignment).values()
        environments |= {_key(a) for a in assignments if a.workload.kind == "environment"}
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
        if len(healthy) < desired and active is not None and self._room.for_release(environment, active.version):
            return f"{name} has {len(healthy)} healthy replicas, {desired} are wanted, and there is room"
        leaving = [key for key in mine if key not in kept and mine[key].deployment]
        if leaving:
            return f"{name}: {leaving[0][1]} on {leaving[0][0]} is still there, {mine[leaving[0]].desired}"
        if len(kept) > desired and len(healthy) > desired:
            return f"{name} has {len(kept)} replicas, {desired} are wanted"
        return ""

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
            if leaders[0].busy or leaders[0].follower.behind:
                return f"{name} is still deciding"
        return ""

    def _routes(self) -> str:
        """9: every proxy serves what a fresh load gives."""
        manifest = self._log.current(ROUTE_MANIFEST).get(())
        if manifest is None:
            return ""
        whole = {kind.subject(*key): kind for kind in ROUTE_KINDS for key in self._log.current(kind)}
        for proxy in self._proxies:
            if not proxy.up or proxy.refusing:
                continue
            if set(proxy.serving) != set(whole):
                return f"{proxy.name} serves {len(proxy.serving)} route records, a fresh load gives {len(whole)}"
            for subject, body in proxy.serving.items():
                if self._log.versions_of(subject)[-1].body != body:
                    return f"{proxy.name} serves another {subject} than a fresh load gives"
        return ""


def _key(assignment: Assignment) -> Key:
    return tuple(assignment.workload.key.split("/"))
