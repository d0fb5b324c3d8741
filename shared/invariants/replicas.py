"""3 and 8: as many replicas as wanted and no more, one to a slot; and what an assignment says only moves on.

`run` replicas of a set that are not lost: at most as many as desired and one in replacement, or as many as the
deployment that the set belongs to has started.
"""

from collections import Counter
from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of, workload_of
from shared.model.assignment import Assignment
from shared.model.deployment import Deployment
from shared.service import Version
from shared.subjects import DEPLOYMENT, Key

ORDER = {"run": 0, "drain": 1, "stop": 2}


def desired_only_moves_on(moment: Moment) -> Iterator[Breach]:
    for version in moment.assignments:
        old, new = moment.before(version.key), version.record
        if old is None or not isinstance(new, Assignment):
            continue
        if ORDER[new.desired] < ORDER[old.desired]:
            detail = f"goes back from {old.desired} to {new.desired}"
            yield Breach("3", version.sequence, subject_of(version), detail)
        if new.config_hash != old.config_hash:
            yield Breach("8", version.sequence, subject_of(version), "changes what it runs")


def no_more_than_wanted(moment: Moment) -> Iterator[Breach]:
    for workload, version in _workloads(moment).items():
        running = _running(moment, workload)
        ours = {each.record.deployment for each in moment.added if isinstance(each.record, Assignment)}
        for name, count in Counter(a.deployment for a in running.values()).items():
            most = _most(moment, workload, name, moment.read(version))
            if name in ours and count > most:
                detail = f"{'/'.join(workload)} runs {count} replicas of {name or 'no deployment'}, at most {most}"
                yield Breach("3", version.sequence, subject_of(version), detail)


def _most(moment: Moment, workload: Key, name: str, at: int) -> int:
    view = moment.view
    deployment = view.get(DEPLOYMENT, (*workload, name), Deployment)
    own = deployment.replicas if deployment is not None and not deployment.terminal else 0
    serves = name in (view.serving(workload), view.serving(workload, at))
    desired = max(view.desired(workload), view.desired(workload, at)) if serves else 0
    return max(own, desired) + 1


def one_incarnation_of_a_slot(moment: Moment) -> Iterator[Breach]:
    for workload, version in _workloads(moment).items():
        taken = Counter((a.deployment, a.slot) for a in _running(moment, workload).values())
        if twice := [slot for slot, count in taken.items() if count > 1]:
            detail = f"slots {twice} of {'/'.join(workload)} run twice"
            yield Breach("8", version.sequence, subject_of(version), detail)


def _workloads(moment: Moment) -> dict[Key, Version]:
    """Those that get replicas, each with the last one."""
    return {workload_of(version): version for version in moment.added}


def _running(moment: Moment, workload: Key) -> dict[Key, Assignment]:
    replicas = moment.view.replicas(workload)
    return {key: a for key, a in replicas.items() if a.desired == "run" and not moment.view.absent(key)}
