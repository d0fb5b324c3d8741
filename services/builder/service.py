"""The builder as a value."""

from functools import partial

from services.builder.commands import COMMANDS
from services.builder.config import BuilderConfig
from services.builder.decide import decide
from services.builder.observed import recall
from services.builder.queries import explain_query, pool_query, queue_query
from services.builder.state import READS, SERVICE, State, attend, fold, observe, settle
from shared import subjects
from shared.service import Service

OWNS = (
    subjects.BUILD_STATUS,
    subjects.BUILD_ORDER,
    subjects.WORKER_LEASE,
    subjects.LEASE_REQUEST,
    subjects.WORKER_SCALE,
)
KEEPS = (subjects.BUILD, subjects.BUILD_POOL)


def service(config: BuilderConfig | None = None) -> Service[State]:
    return Service(
        name=SERVICE,
        reads=READS,
        owns=OWNS,
        keeps=KEEPS,
        observes=("build",),
        new_state=partial(State, config or BuilderConfig()),
        fold=fold,
        decide=decide,
        settle=settle,
        observe=observe,
        attend=attend,
        queries={"queue": queue_query, "pool": pool_query, "explain": explain_query},
        commands=COMMANDS,
        recall=recall,
    )
