"""From probe results to a state: `running` until the first pass, then `healthy` or `unhealthy`. Pure.

| state     | probe  | condition                                              | next      |
|-----------|--------|--------------------------------------------------------|-----------|
| any       | passes |                                                        | healthy   |
| healthy   | fails  | `unhealthy_threshold` failures in a row                | unhealthy |
| running   | fails  | as many in a row, and `grace_period_seconds` are over  | unhealthy |
| unhealthy | fails  |                                                        | unhealthy |

Until the first pass the probes come at 0.1 s, doubling up to the interval: a replica that is up after 0.3 s serves
after 0.3 s. Being unhealthy never restarts a replica here.
"""

from dataclasses import dataclass, replace
from typing import Literal

from shared.model.run import Healthcheck

FIRST_DELAY_SECONDS = 0.1


HealthState = Literal["running", "healthy", "unhealthy"]


@dataclass(frozen=True, slots=True)
class Health:
    """What the probes so far say. `probes` counts those before the first pass, `failures` those in a row."""

    state: HealthState = "running"
    passed_once: bool = False
    failures: int = 0
    probes: int = 0


def after_probe(health: Health, check: Healthcheck, *, passed: bool, elapsed_seconds: float) -> Health:
    """The health after one more probe, `elapsed_seconds` after the start of the replica."""
    if passed:
        return Health("healthy", passed_once=True)
    failures = health.failures + 1
    patience = health.passed_once or elapsed_seconds >= check.grace_period_seconds
    state: HealthState = "unhealthy" if failures >= check.unhealthy_threshold and patience else health.state
    return replace(health, state=state, failures=failures, probes=health.probes + 1)


def delay_seconds(health: Health, check: Healthcheck) -> float:
    """How long to wait before the next probe."""
    if health.passed_once:
        return check.interval_seconds
    doublings = min(health.probes, 32)
    return min(check.interval_seconds, FIRST_DELAY_SECONDS * (1 << doublings))
