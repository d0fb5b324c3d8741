"""The scheduler's invariants at every prefix of the log (numbers of RELIABILITY.md).

A decision is judged by what its service had read (`read_sequence`), so that a failure nobody could know of yet is not
held against it. What a replica really is (gone, lost, healthy) comes from the records of agents and of node status.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from shared.model.assignment import Assignment
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.node import Node
from shared.model.service import DecisionRecord
from shared.service import Version
from shared.subjects import ACTIVE, ASSIGNMENT, DECISION, DEPLOYMENT, NODE, Key

from .agents import Agent
from .invariants import Violation
from .log import Log
from .proxies import Proxy
from .view import View
from .wire import Stored

SETTLED_SECONDS = 20.0
"""A proxy counts as live once it has served for so long: before, the scheduler need not have heard of it."""


class SchedulerIsSafe:
    def __init__(self, log: Log, proxies: Sequence[Proxy], seconds: Callable[[], float]) -> None:
        self._log = log
        self._proxies = proxies
        self._seconds = seconds
        self.view = View(log)

    def __call__(self, stored: Sequence[Stored]) -> None:
        before = {
            message.key: self.view.get(ASSIGNMENT, message.key, Assignment)
            for message in stored
            if message.kind is ASSIGNMENT
        }
        read = self._read_sequences(stored)
        versions = self.view.apply(stored)
        changed = [version for version in versions if version.kind is ASSIGNMENT]
        at = stored[-1].at
        if changed:
            self._desired_only_moves_on(changed, before)
            added = [v for v in changed if before[v.key] is None and isinstance(v.record, Assignment)]
            self._fits(added)
            self._not_too_many(added, read)
            self._one_incarnation(added)
            self._serves_on(changed, before, read)
            self._no_stop_under_traffic(changed, before, read, at)
        for version in versions:
            if version.kind is ACTIVE:
                self._promoted_when_healthy(version, read)

    def _read_sequences(self, stored: Sequence[Stored]) -> dict[str, int]:
        """By subject, what the decision that changed it had read; the sequence itself where none explains it."""
        found = {message.subject: message.sequence for message in stored}
        for message in stored:
            if message.kind is DECISION:
                record = self._log.read(message).record
                if isinstance(record, DecisionRecord):
                    found |= dict.fromkeys(record.changes, record.read_sequence)
        return found

    def _desired_only_moves_on(self, changed: Iterable[Version], before: dict[Key, Assignment | None]) -> None:
        order = {"run": 0, "drain": 1, "stop": 2}
        for version in changed:
            old = before[version.key]
            if old is not None and isinstance(version.record, Assignment):
                if order[version.record.desired] < order[old.desired]:
                    raise Violation("3", f"{_name(version)} goes back from {old.desired} to {version.record.desired}")
                if version.record.config_hash != old.config_hash:
                    raise Violation("8", f"{_name(version)} changes what it runs")

    def _fits(self, added: Sequence[Version]) -> None:
        """2: reservations never exceed capacity, draining and stopping replicas counted."""
        for node in {version.key[0] for version in added}:
            record = self.view.get(NODE, (node,), Node)
            if record is None:
                raise Violation("2", f"a replica is placed on {node}, which is not registered")
            cpu = memory = 0
            for key, assignment in self.view.all(ASSIGNMENT, Assignment).items():
                if key[0] == node and not self.view.gone(key):
                    resources = assignment.resources.effective()
                    cpu += resources.cpu_millis
                    memory += resources.memory_mb
            capacity = record.capacity
            if (capacity.cpu_millis and cpu > capacity.cpu_millis) or (
                capacity.memory_mb and memory > capacity.memory_mb
            ):
                raise Violation("2", f"{node} has {capacity}, reserved are {cpu} and {memory} at {added[-1].sequence}")

    def _not_too_many(self, added: Sequence[Version], read: dict[str, int]) -> None:
        """3: `run` replicas ≤ desired + 1 + those of one deployment (its own set, or the old one that stays warm)."""
        for environment, version in {_environment(version): version for version in added}.items():
            at = read[_name(version)]
            desired = max(self.view.desired(environment), self.view.desired(environment, at))
            mine = self.view.replicas(environment)
            runs = [key for key, a in mine.items() if a.desired == "run" and not self._absent(key)]
            deployments = [
                d
                for key, d in self.view.all(DEPLOYMENT, Deployment).items()
                if key[:3] == environment and not d.terminal
            ]
            active = self.view.get(ACTIVE, environment, ActiveRelease)
            serving = active.deployment if active is not None else ""
            sets = Counter(mine[key].deployment for key in runs)
            for name, count in sets.items():
                own = next((d.replicas for d in deployments if d is self._deployment(environment, name)), 0)
                most = max(own, desired if name == serving else 0) + 1
                if count > most and any(_set(version) == name for version in added):
                    raise Violation(
                        "3", f"{environment} runs {count} replicas of {name or 'no deployment'}, not {most}"
                    )

    def _deployment(self, environment: Key, name: str) -> Deployment | None:
        return self.view.get(DEPLOYMENT, (*environment, name), Deployment)

    def _one_incarnation(self, added: Sequence[Version]) -> None:
        """8: a slot has at most one incarnation that runs."""
        for environment in {_environment(version) for version in added}:
            taken = Counter(
                (assignment.deployment, assignment.slot)
                for key, assignment in self.view.replicas(environment).items()
                if assignment.desired == "run" and not self._absent(key)
            )
            twice = [slot for slot, count in taken.items() if count > 1]
            if twice:
                raise Violation("8", f"{environment}: slots {twice} run twice at {added[-1].sequence}")

    def _absent(self, key: Key) -> bool:
        return self.view.gone(key) or self.view.lost(key[0])

    def _serves_on(
        self, changed: Sequence[Version], before: dict[Key, Assignment | None], read: dict[str, int]
    ) -> None:
        """4: taking a healthy replica out of service leaves min(old desired, new desired) healthy ones."""
        for version in changed:
            old = before[version.key]
            if old is None or old.desired != "run" or _still_runs(version):
                continue
            at = read[version.kind.subject(*version.key)]
            environment = tuple(old.workload.key.split("/"))
            active = self.view.get(ACTIVE, environment, ActiveRelease)
            if active is None or active.deployment != old.deployment or not self.view.healthy(version.key, at):
                continue
            if old.run.volumes:
                continue  # replaced in the other order: never two at a time
            left = sum(
                a.desired == "run" and a.deployment == old.deployment and self.view.healthy(key, at)
                for key, a in self.view.replicas(environment).items()
            )
            wanted = min(self.view.desired(environment), self.view.desired(environment, at))
            if left < wanted:
                raise Violation(
                    "4", f"{_name(version)} at {version.sequence} leaves {left} healthy replicas, wanted are {wanted}"
                )

    def _promoted_when_healthy(self, version: Version, read: dict[str, int]) -> None:
        """4: traffic is switched to a set that is as wide as it is meant to be, and healthy."""
        record = version.record
        if not isinstance(record, ActiveRelease) or not record.deployment:
            return
        at = read[version.kind.subject(*version.key)]
        earlier = self.view.get(ACTIVE, version.key, ActiveRelease, version.sequence - 1)
        if earlier is not None and earlier.deployment == record.deployment:
            return
        healthy = sum(
            a.desired == "run" and a.deployment == record.deployment and self.view.healthy(key, at)
            for key, a in self.view.replicas(version.key).items()
        )
        deployment = self._deployment(version.key, record.deployment)
        wanted = min(self.view.desired(version.key, at), deployment.replicas if deployment is not None else 0)
        if healthy < max(1, wanted):
            raise Violation("4", f"{version.key} is switched to {record.deployment} with {healthy} of {wanted} healthy")

    def _no_stop_under_traffic(
        self, changed: Sequence[Version], before: dict[Key, Assignment | None], read: dict[str, int], now: datetime
    ) -> None:
        """5: no stop of a replica that a live proxy still serves, outside loss, failure and named deadlines."""
        for version in changed:
            old, new = before[version.key], version.record
            if old is None or old.desired == "stop" or (isinstance(new, Assignment) and new.desired != "stop"):
                continue
            at = read[version.kind.subject(*version.key)]
            if self.view.gone(version.key, at) or self.view.lost(version.key[0], at):
                continue
            if old.drain_deadline is not None and now >= old.drain_deadline - timedelta(seconds=1):
                continue
            for proxy in self._proxies:
                settled = proxy.serving_since is not None and self._seconds() - proxy.serving_since > SETTLED_SECONDS
                if proxy.up and not proxy.paused and settled and proxy.serves(version.key[1]):
                    raise Violation(
                        "5", f"{_name(version)} is stopped at {version.sequence}; {proxy.name} serves it in version "
                        f"{proxy.version}"
                    )  # fmt: skip


class OneReplicaOfAVolume:
    """3: the replicas that really run with one volume, on all machines together, are at most one."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents
        for agent in agents:
            agent.on_start = self._started

    def _started(self, assignment: Assignment) -> None:
        if not assignment.run.volumes:
            return
        running = [
            f"{name} on {agent.name}"
            for agent in self._agents
            for name, replica in agent.replicas.items()
            if replica.alive and replica.assignment.run.volumes and replica.assignment.workload == assignment.workload
        ]
        if len(running) > 1:
            raise Violation("3", f"a volume of {assignment.workload.key} is used by {', '.join(running)}")


def _name(version: Version) -> str:
    return version.kind.subject(*version.key)


def _environment(version: Version) -> Key:
    assert isinstance(version.record, Assignment)
    return tuple(version.record.workload.key.split("/"))


def _set(version: Version) -> str:
    return version.record.deployment if isinstance(version.record, Assignment) else ""


def _still_runs(version: Version) -> bool:
    return isinstance(version.record, Assignment) and version.record.desired == "run"
