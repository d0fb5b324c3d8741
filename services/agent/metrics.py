"""What Prometheus reads about an agent, at `/metrics` beside `/healthz` and `/readyz` where `STEER_METRICS_PORT` says."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from shared.model.assignment import InstanceState


class Metrics:
    """Counted when it is asked for: `states` are those of the replicas, `waiting` the reports that are not stored."""

    def __init__(self, node: str, states: Callable[[], Iterable[InstanceState]], waiting: Callable[[], int]) -> None:
        self._node = node
        self._states = states
        self._waiting = waiting
        self._registry = CollectorRegistry()
        self._replicas = Gauge(
            "steer_agent_replicas", "Replicas of this node by state", ("node", "state"), registry=self._registry
        )
        self._reports = Gauge(
            "steer_agent_reports_waiting", "Reports that are not stored yet", ("node",), registry=self._registry
        )

    def text(self) -> bytes:
        """The exposition format."""
        counts = Counter(self._states())
        for state in get_args(InstanceState):
            self._replicas.labels(self._node, state).set(counts[state])
        self._reports.labels(self._node).set(self._waiting())
        return generate_latest(self._registry)
