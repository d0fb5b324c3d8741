"""A worker that somebody else runs, ready for whoever leases it."""

from shared import subjects
from shared.model.build_worker import BuildWorker, WorkerConditions
from shared.runtime import records
from shared.runtime.bus import Bus

POOL = "default"


async def ready_worker(bus: Bus, ordinal: int = 0) -> None:
    """A buildkitd that somebody else runs: it takes no orders."""
    conditions = WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True)
    record = BuildWorker.model_validate(
        {
            "ordinal": ordinal,
            "phase": "running",
            "conditions": conditions,
            "created_at": "2030-01-01T00:00:00Z",
            "takes_orders": False,
        }
    )
    await records.put(bus, subjects.BUILD_WORKER, (POOL, f"w-{ordinal}"), record)
