"""5, as far as the log shows it: a replica is stopped once the routes are without it, at its deadline, or when gone.

Whether the proxies had followed is telemetry, and in the observation of the decision.
"""

from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.assignment import Assignment
from shared.model.route import Routed
from shared.service import Version
from shared.subjects import ASSIGNMENT, ROUTED_ENVIRONMENT, ROUTED_POOL


def drained_before_stopped(moment: Moment) -> Iterator[Breach]:
    for version in moment.assignments:
        old, new = moment.before(version.key), version.record
        if old is None or old.desired == "stop" or (isinstance(new, Assignment) and new.desired != "stop"):
            continue
        if _is_over(moment, version):
            continue
        if old.desired == "run":
            yield Breach("5", version.sequence, subject_of(version), "is stopped without a drain")
        elif not _taken_in(moment, version, old) and (old.drain_deadline is None or moment.at < old.drain_deadline):
            detail = f"is stopped before the routes have taken its drain in, and before {old.drain_deadline}"
            yield Breach("5", version.sequence, subject_of(version), detail)


def _is_over(moment: Moment, version: Version) -> bool:
    at = moment.read(version)
    return moment.view.gone(version.key, at) or moment.view.lost(version.key[0], at)


def _taken_in(moment: Moment, version: Version, old: Assignment) -> bool:
    kind = ROUTED_ENVIRONMENT if old.workload.kind == "environment" else ROUTED_POOL
    workload = tuple(old.workload.key.split("/"))
    routed = moment.view.get(kind, workload, Routed, moment.read(version))
    drain = moment.view.version(ASSIGNMENT, version.key, moment.first - 1)
    return routed is not None and drain is not None and routed.drains.get(version.key[1], 0) >= drain.sequence
