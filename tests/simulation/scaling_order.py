"""What must come of environments that follow their demand: awake with visitors and as wide as they need, else asleep."""

from math import ceil

from shared.invariants.view import View
from shared.model.deployment import ActiveRelease
from shared.model.environment import Environment
from shared.model.release import Release
from shared.subjects import ACTIVE, ENVIRONMENT, RELEASE, Key

from .visitors import Visitors

PROXIES = 2


def unmet_scaling(view: View, visitors: Visitors) -> str:
    for environment, here in visitors.here.items():
        if problem := _of(view, environment, here):
            return f"{'/'.join(environment)} with {here} visitors at each proxy {problem}"
    return ""


def _of(view: View, environment: Key, here: int) -> str:
    active = view.get(ACTIVE, environment, ActiveRelease)
    record = view.get(ENVIRONMENT, environment, Environment)
    if active is None or not active.version or record is None:
        return ""
    release = view.get(RELEASE, (*environment, active.version), Release)
    desired = view.desired(environment)
    if release is None or not (release.service.scale_to_zero or release.service.max_concurrency):
        return ""
    if here:
        return _awake(record, release, here, desired)
    mine = [key for key, a in view.replicas(environment).items() if a.desired == "run"]
    if desired and release.service.scale_to_zero and mine and all(view.healthy(key) for key in mine):
        return "has not gone to sleep"
    return ""


def _awake(record: Environment, release: Release, here: int, desired: int) -> str:
    if not desired:
        return "sleeps"
    if not release.service.max_concurrency:
        return ""
    least = 1 if release.service.scale_to_zero else max(1, record.replicas.min)
    most = max(least, record.replicas.most)
    # A proxy that refuses for ever has no visitors.
    wanted = [
        max(least, min(ceil(here * proxies / release.service.max_concurrency), most))
        for proxies in range(1, PROXIES + 1)
    ]
    return "" if desired in wanted else f"is to have {desired} replicas, not {wanted[-1]}"
