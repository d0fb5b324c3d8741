"""Telemetry: heartbeats of nodes and reports of proxies, kept beside the records with the time of their receipt."""

from datetime import datetime

from services.scheduler.state import NodeHeard, ProxyHeard, State
from shared import subjects
from shared.model.live import Demand, NodeSample, ProxySample
from shared.model.node import NodeStatus
from shared.service import Sample

_NONE = Demand()


def observe(state: State, sample: Sample, received_at: datetime) -> None:
    """Take a heartbeat of a node or the report of a proxy."""
    if isinstance(sample.body, NodeSample):
        state.heard[sample.name] = received_at
        state.listening.pop(sample.name, None)  # the one heard last stands last
        state.listening[sample.name] = received_at
        if sample.body.instances:
            heard = NodeHeard(received_at, sample.body.interval_seconds, sample.body.instances)
            state.samples[sample.name] = heard
        status = state.get(subjects.NODE_STATUS, (sample.name,), NodeStatus)
        if status is not None and status.state != "alive":
            state.mark(("node", sample.name))
    elif isinstance(sample.body, ProxySample):
        before = state.proxies.get(sample.name)
        body = sample.body
        state.proxies[sample.name] = ProxyHeard(body.version, body.error, received_at, body.demand)
        _mark_demand(state, before, body, received_at)
        if before is None:  # there are data now, also of those that it has no requests for
            for environment in state.follows_demand:
                state.mark(("environment", *environment))
        if before is None or (before.version, before.error) != (sample.body.version, sample.body.error):
            for target in state.draining:
                state.mark(target)


def _mark_demand(state: State, before: ProxyHeard | None, body: ProxySample, received_at: datetime) -> None:
    """Look at the environments whose demand has changed, where it matters."""
    known = before.demand if before is not None else {}
    for name in body.demand.keys() | known.keys():
        environment, demand = tuple(name.split("/")), body.demand.get(name, _NONE)
        if environment not in state.follows_demand:
            continue
        if demand.inflight or demand.parked:
            state.busy_at[environment] = received_at
        if demand != known.get(name, _NONE):
            state.mark(("environment", *environment))


def attend(state: State, now: datetime) -> None:
    """Telemetry is heard from `now` on: nobody is silent for a time in which nobody listened."""
    forget(state)
    state.attended_at = now
    state.listening = dict.fromkeys([name for (name,) in state.tables[subjects.NODE]], now)
    for target in state.draining:
        state.mark(target)


def forget(state: State) -> None:
    """Nobody listens: what was heard is out of date."""
    state.attended_at = None
    for heard in (state.heard, state.listening, state.proxies, state.samples):
        heard.clear()
