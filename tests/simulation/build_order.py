"""What must come of builds once nothing goes wrong any more."""

from collections.abc import Iterator

from shared.model.build import BuildPool, BuildStatus
from shared.model.build_worker import WorkerLease, WorkerScale
from shared.subjects import BUILD, BUILD_ORDER, BUILD_STATUS, BUILD_WORKER, WORKER_LEASE, WORKER_SCALE

from .build_workers import POOL, Workers
from .log import Log


def unmet_builds(log: Log, pool: BuildPool, workers: Workers) -> Iterator[str]:
    """6: every build is terminal, nobody holds a worker, and the workers are as many as the pool keeps without work."""
    requests, statuses = log.current(BUILD), log.current(BUILD_STATUS)
    for key, status in statuses.items():
        if isinstance(status, BuildStatus) and not status.terminal:
            yield f"build {'/'.join(key)} is {status.state} until {status.deadline}"
    if set(requests) != set(statuses):
        yield f"build requests and statuses differ: {set(requests) ^ set(statuses)}"
    if orders := log.current(BUILD_ORDER):
        yield f"build orders are left: {sorted(orders)}"
    for key, lease in log.current(WORKER_LEASE).items():
        if isinstance(lease, WorkerLease) and lease.token:
            yield f"the lease of {key} is left"
    scale = log.record(WORKER_SCALE, (POOL,))
    if not isinstance(scale, WorkerScale) or scale.replicas != pool.min_workers or scale.replace:
        yield f"the scale is {scale}"
    if {key[1] for key in log.current(BUILD_WORKER)} != {worker.name for worker in workers.workers.values()}:
        yield "the workers differ from their records"
