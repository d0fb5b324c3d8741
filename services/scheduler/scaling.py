"""How wide an environment is: one policy owns it, and each change is one `Scale` record with its reason.

| the release that serves | policy |
|---|---|
| `max_concurrency` | concurrency: replicas = demand / max_concurrency |
| targets, and `max` above `min` | resource: the largest of the shares of cpu, memory and requests per second |
| `scale_to_zero` | idle: none after `idle_timeout_seconds` without a request |

Demand is `inflight + parked` of the live proxies. Up goes at once; down is held, with the highest number wanted since
kept in the record, so a change of leader changes nothing. Without data nothing moves, and a gap in it never scales down.
Formulas: reference sections 8 to 10. To none, in any policy, only after the whole idle time, counted from the last
request, the last change, and the first health. An `Activation` wakes what is cold, compared by sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Literal

from services.scheduler.draft import Draft
from services.scheduler.observed import demand_of
from services.scheduler.policy import Policy, floor, policy_of
from services.scheduler.replicas import Replica
from services.scheduler.state import State
from shared import subjects
from shared.model.activation import Activation
from shared.model.deployment import Scale
from shared.model.environment import Environment, ServiceSpec
from shared.model.live import Demand
from shared.subjects import Key

RESOURCE_INTERVAL = timedelta(seconds=15)
RESOURCE_HOLD = timedelta(minutes=5)
RESOURCE_COOLDOWN = timedelta(minutes=3)
LOW_BAND = 0.8
CONCURRENCY_HOLD = timedelta(seconds=60)
PROXY_LIVE = timedelta(seconds=15)
GAP = timedelta(seconds=60)
"""For so long after a proxy fell silent its demand may still be there, unseen."""
USAGE_LIVE_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class Load:
    """What the live proxies see of an environment. `complete`: none has just fallen silent, and all had time to speak."""

    total: int = 0
    rps: float = 0.0
    last_request_at: datetime | None = None
    proxies: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Scaling:
    """One environment in one pass. `members` are the replicas of the set that serves."""

    key: Key
    spec: Environment
    service: ServiceSpec
    members: Sequence[Replica]
    draft: Draft

    @property
    def floor(self) -> int:
        return floor(self.spec, self.service)

    @property
    def most(self) -> int:
        return max(self.floor, self.spec.replicas.most)

    def clamp(self, count: int) -> int:
        return max(self.floor, min(count, self.most))


def effective_replicas(state: State, key: Key, spec: Environment, service: ServiceSpec) -> int:
    """`clamp(Scale or min, floor, max)`: an edit of min or max rules at once; without a policy, `min`."""
    scale = state.get(subjects.SCALE, key, Scale) if policy_of(spec, service) else None
    wanted = scale.effective_replicas if scale is not None else spec.replicas.min
    least = floor(spec, service)
    return max(least, min(wanted, max(least, spec.replicas.most)))


def rescale(this: Scaling, *, frozen: bool = False) -> int:
    """The number of replicas from now on; a change is in the draft, with what was observed.

    `frozen` = a deployment is on its way to be promoted: it counts its replicas once, so that nothing but an activation
    moves the number meanwhile.
    """
    draft, state = this.draft, this.draft.state
    effective = effective_replicas(state, this.key, this.spec, this.service)
    policy = policy_of(this.spec, this.service)
    if policy is None:
        return effective
    if effective == 0 and (woken := _woken(this)):
        return woken
    if frozen:
        return effective
    load = load_of(state, this.key, draft)
    if policy == "resource":
        draft.wake(draft.now + RESOURCE_INTERVAL)
        return _resource(this, load, effective)
    if this.service.scale_to_zero and effective and _idle(this, load):
        return _write(this, 0, policy, f"no request for {_idle_time(this).total_seconds():.0f} s")
    return _concurrency(this, load, effective) if policy == "concurrency" else effective


def _concurrency(this: Scaling, load: Load, effective: int) -> int:
    if not load.proxies:
        return effective
    wanted = this.clamp(ceil(load.total / this.service.max_concurrency))
    reason = f"demand {load.total}, {this.service.max_concurrency} each"
    if wanted > effective:
        return _write(this, wanted, "concurrency", reason)
    if max(1, wanted) < effective:
        down = max(1, wanted)
        return _hold(this, down, effective, CONCURRENCY_HOLD, timedelta(), "concurrency", reason, load)
    _release_hold(this)
    return effective


def _idle_time(this: Scaling) -> timedelta:
    return timedelta(seconds=this.spec.idle_timeout_seconds) or (
        CONCURRENCY_HOLD if this.service.max_concurrency else timedelta()
    )


def _woken(this: Scaling) -> int:
    """The number to wake to, where an activation asks that had not been seen when it was cooled; else 0."""
    state = this.draft.state
    scale = state.get(subjects.SCALE, this.key, Scale)
    latest = state.activations.get(this.key)
    if latest is None or (scale is not None and latest.sequence <= scale.activation_sequence):
        return 0
    record = latest.record
    assert isinstance(record, Activation)
    this.draft.because(latest.sequence)
    load = load_of(state, this.key, this.draft)
    demand = max(record.parked, load.total)
    by_demand = ceil(demand / this.service.max_concurrency) if this.service.max_concurrency else 0
    wanted = min(max(1, this.spec.replicas.min, by_demand), max(1, this.most))
    return _write(this, wanted, "activation", f"activated by {latest.key[0]}, {demand} waiting")


def load_of(state: State, key: Key, draft: Draft) -> Load:
    """The demand of an environment as the live proxies report it."""
    name = "/".join(key)
    total, rps, last, live, complete = 0, 0.0, None, 0, True
    seen: dict[str, Any] = {}
    quiet = []
    for proxy, heard in sorted(state.proxies.items()):
        age = draft.now - heard.at
        if age >= PROXY_LIVE:
            if age < GAP:
                complete = False
                quiet.append(proxy)
            continue
        live += 1
        demand = heard.demand.get(name) or Demand()
        if demand.inflight or demand.parked:
            draft.wake(heard.at + PROXY_LIVE)  # what it reported does not outlive it
        total += demand.inflight + demand.parked
        rps += demand.rps
        if demand.last_request_at is not None:
            last = max(last or demand.last_request_at, demand.last_request_at)
        seen[proxy] = demand_of(demand)
    if state.attended_at is None or draft.now < state.attended_at + PROXY_LIVE:
        complete = False
    draft.observation.update({"attended_at": state.attended_at, "demand": seen})
    if quiet:
        draft.observation["quiet_proxies"] = quiet
    return Load(total, rps, last, live, complete)


def _idle(this: Scaling, load: Load) -> bool:
    """Whether nobody has wanted it for the whole idle time. Notes when that would be so."""
    draft, state = this.draft, this.draft.state
    if load.total or not _idle_time(this):
        return False
    since = [item.instance_at for item in this.members if item.healthy and item.instance_at is not None]
    if this.members and len(since) < len([item for item in this.members if item.runs]):
        return False  # it has just been woken: its health is still to come
    scale = state.tables[subjects.SCALE].get(this.key)
    if scale is not None and isinstance(scale.record, Scale) and scale.record.policy == "activation":
        since.append(scale.record.changed_at)
    if load.last_request_at is not None:
        since.append(load.last_request_at)
    if (busy := state.busy_at.get(this.key)) is not None:
        since.append(busy)
        draft.observation["busy_at"] = busy
    if not since:
        return False
    at = max(since) + _idle_time(this)
    if not load.proxies or not load.complete:
        draft.wake(draft.now + PROXY_LIVE)
        return False
    draft.wake(at)
    return draft.now >= at


def _resource(this: Scaling, load: Load, effective: int) -> int:
    up = _resource_target(this, load, 1.0, missing_at_target=False)
    down = _resource_target(this, load, 1.0, missing_at_target=True)
    if up is None or down is None:
        return effective
    scale = this.draft.state.get(subjects.SCALE, this.key, Scale)
    if up[0] > effective:
        if scale is not None and (until := scale.changed_at + RESOURCE_COOLDOWN) > this.draft.now:
            this.draft.wake(until)
            return effective
        return _write(this, up[0], "resource", up[1])
    low = _resource_target(this, load, LOW_BAND, missing_at_target=True)
    if down[0] < effective and low is not None and low[0] < effective and load.complete:
        return _hold(this, down[0], effective, RESOURCE_HOLD, RESOURCE_COOLDOWN, "resource", down[1], load)
    _release_hold(this)
    return effective


def _resource_target(this: Scaling, load: Load, band: float, *, missing_at_target: bool) -> tuple[int, str] | None:
    """The number that the configured signals ask for and the one that asks for most; None = freeze, for lack of data."""
    targets = this.service.autoscale
    assert targets is not None
    ready = [item for item in this.members if item.healthy]
    usage = _usage(this, ready)
    if not ready or ((targets.target_cpu_percent or targets.target_memory_percent) and not usage):
        return None
    asked = [(max(1, this.spec.replicas.min), "min")]
    for what, target, values in (
        ("cpu", targets.target_cpu_percent, [cpu for cpu, _ in usage]),
        ("memory", targets.target_memory_percent, [memory for _, memory in usage]),
    ):
        if target:
            total = sum(values) + (target * (len(ready) - len(values)) if missing_at_target else 0)
            asked.append(
                (ceil(round(total / (target * band), 9)), f"{what} {total / len(ready):.0f} %, target {target} %")
            )
    if rps_target := targets.target_rps_per_replica:
        if not load.proxies:
            return None
        why = f"{load.rps:.0f} requests/s, target {rps_target:g} each"
        asked.append((ceil(round(load.rps / (rps_target * band), 9)), why))
    count, why = max(asked, key=lambda item: item[0])
    return max(1, this.spec.replicas.min, min(count, this.spec.replicas.most)), why


def _usage(this: Scaling, ready: Sequence[Replica]) -> list[tuple[float, float]]:
    """Percent of a core's share and of the reserved memory for each replica with a fresh sample."""
    found = []
    seen: dict[str, tuple[float, float]] = {}
    for item in ready:
        heard = this.draft.state.samples.get(item.node)
        if heard is None or this.draft.now - heard.at > USAGE_LIVE_INTERVALS * timedelta(
            seconds=heard.interval_seconds
        ):
            continue
        usage = heard.instances.get(item.id)
        if usage is not None:
            seen[item.id] = (float(usage.cpu_percent), float(usage.memory_mb))
            found.append((usage.cpu_percent, 100 * usage.memory_mb / item.assignment.resources.effective().memory_mb))
    if seen:
        this.draft.observation["usage"] = seen
    return found


def _hold(
    this: Scaling,
    wanted: int,
    effective: int,
    hold: timedelta,
    cooldown: timedelta,
    policy: Policy,
    reason: str,
    load: Load,
) -> int:
    """Scale down to the highest number wanted in the whole of the hold, once it has passed."""
    draft = this.draft
    if not load.complete:
        draft.wake(draft.now + PROXY_LIVE)
        return effective
    scale = draft.state.get(subjects.SCALE, this.key, Scale) or Scale(
        effective_replicas=effective, policy=policy, changed_at=draft.now, reason="began"
    )
    if scale.low_since is None or wanted > scale.low_peak:
        since = scale.low_since or draft.now
        draft.change(subjects.SCALE, this.key, scale.model_copy(update={"low_since": since, "low_peak": wanted}))
        draft.outcomes.append(f"{wanted} replicas would do: {reason}")
        draft.wake(since + hold)
        return effective
    at = max(scale.low_since + hold, scale.changed_at + cooldown)
    if draft.now < at:
        draft.wake(at)
        return effective
    return _write(this, max(wanted, scale.low_peak), policy, reason)


def _release_hold(this: Scaling) -> None:
    scale = this.draft.state.get(subjects.SCALE, this.key, Scale)
    if scale is not None and scale.low_since is not None:
        update = {"low_since": None, "low_peak": 0}
        this.draft.change(subjects.SCALE, this.key, scale.model_copy(update=update))
        this.draft.outcomes.append("the load is back: no scale-down")


def _write(
    this: Scaling,
    wanted: int,
    policy: Literal["resource", "concurrency", "idle", "activation"],
    reason: str,
) -> int:
    draft = this.draft
    before = effective_replicas(draft.state, this.key, this.spec, this.service)
    latest = draft.state.activations.get(this.key)
    record = Scale(
        effective_replicas=wanted,
        policy=policy,
        reason=reason,
        changed_at=draft.now,
        activation_sequence=latest.sequence if latest is not None else 0,
    )
    draft.change(subjects.SCALE, this.key, record)
    draft.outcomes.append(f"scale {before} → {wanted}: {reason}")
    draft.reasons["scale"] = {"from": before, "to": wanted, "policy": policy, "reason": reason}
    return wanted
