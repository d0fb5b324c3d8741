"""4, of functions: what a worker of an old signature carries and the pool keeps, is ready in another one before that one
leaves; or the new one has been healthy for a minute.
"""

from collections.abc import Iterator
from datetime import timedelta

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.assignment import Assignment, Instance
from shared.model.pool import Pool
from shared.service import Version
from shared.subjects import INSTANCE, POOL, Key

CARRIED = timedelta(seconds=59)


def carried_functions_keep_a_worker(moment: Moment) -> Iterator[Breach]:
    for version in moment.assignments:
        old = moment.before(version.key)
        if old is None or old.workload.kind != "pool" or old.desired != "run" or _still_runs(version):
            continue
        workload, at = tuple(old.workload.key.split("/")), moment.read(version)
        pool = moment.view.get(POOL, workload, Pool, at)
        if pool is None or not pool.desired or not moment.view.healthy(version.key, at):
            continue
        if old.deployment == moment.view.serving(workload, at):
            continue  # not a new signature but a replacement, for which it is enough to be healthy
        left = _ready(moment, version.key, at) & set(pool.members)
        others = [key for key, a in moment.view.replicas(workload).items() if a.desired == "run"]
        for key in others:
            left -= _ready(moment, key, at)
        if left and not any(_has_had_its_time(moment, key, at) for key in others):
            yield Breach("4", version.sequence, subject_of(version), f"leaves {sorted(left)} without a worker")


def _ready(moment: Moment, place: Key, at: int) -> set[str]:
    instance = moment.view.get(INSTANCE, place, Instance, at)
    if instance is None or instance.state not in ("running", "healthy"):
        return set()
    return {name for name, said in instance.members.items() if said == "ready"}


def _has_had_its_time(moment: Moment, place: Key, at: int) -> bool:
    version = moment.view.version(INSTANCE, place, at)
    return version is not None and moment.view.healthy(place, at) and version.at + CARRIED <= moment.at


def _still_runs(version: Version) -> bool:
    return isinstance(version.record, Assignment) and version.record.desired == "run"
