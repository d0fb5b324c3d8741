"""The invariants that the log alone does not show: what the proxies really serve, and what really runs on machines."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.assignment import Assignment

from .agents import Agent
from .invariants import Violation
from .proxies import Proxy

SETTLED_SECONDS = 20.0
"""A proxy counts as live once it has served for so long: before, the scheduler need not have heard of it."""


class NoStopUnderTraffic:
    """5: no stop of a replica that a live proxy still serves, outside loss, failure and named deadlines."""

    def __init__(self, proxies: Sequence[Proxy], seconds: Callable[[], float]) -> None:
        self._proxies = proxies
        self._seconds = seconds

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for version in moment.assignments:
            old, new = moment.before(version.key), version.record
            if old is None or old.desired == "stop" or (isinstance(new, Assignment) and new.desired != "stop"):
                continue
            at = moment.read(version)
            if moment.view.gone(version.key, at) or moment.view.lost(version.key[0], at):
                continue
            if old.drain_deadline is not None and moment.at >= old.drain_deadline - timedelta(seconds=1):
                continue
            for proxy in self._proxies:
                if self._is_live(proxy) and proxy.serves(version.key[1]):
                    detail = f"is stopped; {proxy.name} serves it in version {proxy.version}"
                    yield Breach("5", version.sequence, subject_of(version), detail)

    def _is_live(self, proxy: Proxy) -> bool:
        settled = proxy.serving_since is not None and self._seconds() - proxy.serving_since > SETTLED_SECONDS
        return proxy.up and not proxy.paused and settled


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
