"""4: once ready, the healthy replicas that serve never fall below min(old desired, new desired) because of us.

Replicas with a volume are replaced in the other order, never two at a time: they are left out.
"""

from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.assignment import Assignment
from shared.model.deployment import ActiveRelease, Deployment
from shared.service import Version
from shared.subjects import ACTIVE, DEPLOYMENT, Key


def serves_on(moment: Moment) -> Iterator[Breach]:
    """Taking a healthy replica out of service leaves as many as are wanted."""
    view = moment.view
    for version in moment.assignments:
        old = moment.before(version.key)
        if old is None or old.desired != "run" or _still_runs(version) or old.run.volumes:
            continue
        at, workload = moment.read(version), tuple(old.workload.key.split("/"))
        # A pool may go back to an earlier signature while the scheduler still takes the replicas of that one away.
        if {view.serving(workload), view.serving(workload, at)} != {old.deployment} or not view.healthy(
            version.key, at
        ):
            continue
        left = _healthy(moment, workload, old.deployment, at)
        wanted = min(view.desired(workload), view.desired(workload, at))
        if left < wanted:
            detail = f"leaves {left} healthy replicas, wanted are {wanted}"
            yield Breach("4", version.sequence, subject_of(version), detail)


def promoted_when_healthy(moment: Moment) -> Iterator[Breach]:
    """Traffic is switched to a set that is as wide as it is meant to be, and healthy."""
    view = moment.view
    for version in moment.versions:
        record = version.record
        if version.kind is not ACTIVE or not isinstance(record, ActiveRelease) or not record.deployment:
            continue
        earlier = view.get(ACTIVE, version.key, ActiveRelease, moment.first - 1)
        if earlier is not None and earlier.deployment == record.deployment:
            continue
        at = moment.read(version)
        healthy = _healthy(moment, version.key, record.deployment, at)
        deployment = view.get(DEPLOYMENT, (*version.key, record.deployment), Deployment)
        wanted = min(view.desired(version.key, at), deployment.replicas if deployment is not None else 0)
        if healthy < max(1, wanted):
            detail = f"is switched to {record.deployment} with {healthy} of {wanted} healthy"
            yield Breach("4", version.sequence, subject_of(version), detail)


def _healthy(moment: Moment, workload: Key, deployment: str, at: int) -> int:
    return sum(
        a.desired == "run" and a.deployment == deployment and moment.view.healthy(key, at)
        for key, a in moment.view.replicas(workload).items()
    )


def _still_runs(version: Version) -> bool:
    return isinstance(version.record, Assignment) and version.record.desired == "run"
