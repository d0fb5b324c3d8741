"""What a decision has heard: written into its observation where it looks, and put back from there to make it again.

An observation holds what the decision went by, not what was heard: which proxies were live and what they served, not
when each of them spoke. So it is small, it reads well, and it is enough.

| key | what |
|---|---|
| `attended_at` | since when telemetry was listened to |
| `heard_at`, `silent_seconds` | the last heartbeat of the node |
| `losing` | how many nodes were being lost, where it had been silent for too long |
| `proxies`, `errors` | the live proxies with the version that each served, and what those complained of that did |
| `demand` | what each live proxy reported of the environment; `quiet_proxies` had fallen silent a short while ago |
| `busy_at` | when a proxy last reported requests in the environment |
| `usage` | what each replica used, in percent of a core and in MB, where that was known |
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from services.scheduler.state import NodeHeard, ProxyHeard, State, Target
from shared.model.live import Demand, InstanceUsage
from shared.model.service import DecisionRecord
from shared.service import Version
from shared.subjects import DECISION, Key

QUIET = timedelta(seconds=30)
"""Any age at which a proxy is live no more, and its silence still counts."""


def demand_of(demand: Demand) -> dict[str, Any]:
    """What an observation says of the demand at one proxy."""
    found: dict[str, Any] = {"inflight": demand.inflight, "parked": demand.parked, "rps": float(demand.rps)}
    if demand.last_request_at is not None:
        found["last_request_at"] = demand.last_request_at
    return found


def recall(state: State, commit: Sequence[Version], now: datetime) -> None:
    """Put back what the decisions of a commit had observed, and leave only what they are about to be looked at."""
    state.attended_at = state.losing = None
    for heard in (state.heard, state.listening, state.samples, state.proxies, state.busy_at):
        heard.clear()
    state.dirty.clear()
    for version in commit:
        if version.kind is DECISION and isinstance(version.record, DecisionRecord):
            _, about, *key = version.key
            state.mark(_target(about, tuple(key)))
            _recall(state, tuple(key), version.record.observation, now)


def _target(about: str, key: Key) -> Target:
    """What was looked at when this was decided."""
    return ("environment", *key[:3]) if about == "deployment" else ("fleet",) if about == "fleet" else (about, *key)


def _recall(state: State, key: Key, observation: Mapping[str, Any], now: datetime) -> None:
    state.attended_at = _time(observation.get("attended_at")) or state.attended_at
    state.losing = observation.get("losing", state.losing)
    if (heard_at := _time(observation.get("heard_at"))) is not None:
        state.heard[key[0]] = heard_at
    if (busy_at := _time(observation.get("busy_at"))) is not None:
        state.busy_at[key[:3]] = busy_at
    _recall_proxies(state, key, observation, now)
    _recall_usage(state, key, observation.get("usage", {}), now)


def _recall_proxies(state: State, key: Key, observation: Mapping[str, Any], now: datetime) -> None:
    served, demand = observation.get("proxies", {}), observation.get("demand", {})
    for name in (*served, *demand):
        before = state.proxies.get(name, ProxyHeard(0, "", now, {}))
        state.proxies[name] = ProxyHeard(
            version=served.get(name, before.version),
            error=observation.get("errors", {}).get(name, before.error),
            at=now,
            demand={**before.demand, "/".join(key[:3]): Demand.model_validate(demand.get(name, {}))},
        )
    for name in observation.get("quiet_proxies", ()):
        state.proxies[name] = ProxyHeard(0, "", now - QUIET, {})


def _recall_usage(state: State, key: Key, usage: Mapping[str, Any], now: datetime) -> None:
    for node, name in sorted(state.replicas_of.get(("environment", *key[:3]), ())) if usage else ():
        if name in usage:
            cpu_percent, memory_mb = usage[name]
            known = state.samples[node].instances if node in state.samples else {}
            used = InstanceUsage(cpu_percent=cpu_percent, memory_mb=memory_mb)
            state.samples[node] = NodeHeard(now, 1, {**known, name: used})


def _time(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else text
