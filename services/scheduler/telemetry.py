"""Telemetry: heartbeats of nodes and reports of proxies, kept beside the records with the time of their receipt."""

from datetime import datetime

from services.scheduler.state import ProxyHeard, State
from shared import subjects
from shared.model.live import NodeSample, ProxySample
from shared.model.node import NodeStatus
from shared.service import Sample


def observe(state: State, sample: Sample, received_at: datetime) -> None:
    """Take a heartbeat of a node or the report of a proxy."""
    if isinstance(sample.body, NodeSample):
        state.heard[sample.name] = received_at
        status = state.get(subjects.NODE_STATUS, (sample.name,), NodeStatus)
        if status is not None and status.state != "alive":
            state.mark(("node", sample.name))
    elif isinstance(sample.body, ProxySample):
        before = state.proxies.get(sample.name)
        state.proxies[sample.name] = ProxyHeard(sample.body.version, sample.body.error, received_at)
        if before is None or (before.version, before.error) != (sample.body.version, sample.body.error):
            for target in state.draining:
                state.mark(target)


def attend(state: State, now: datetime) -> None:
    """Telemetry is heard from `now` on: nobody is silent for a time in which nobody listened."""
    state.attended_at = now
    state.heard.clear()
    state.proxies.clear()
    for key in state.tables[subjects.NODE]:
        state.mark(("node", *key))
    for target in state.draining:
        state.mark(target)
