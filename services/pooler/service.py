"""The pooler as a value."""

from services.pooler.decide import decide
from services.pooler.queries import QUERIES
from services.pooler.state import attend, fold, observe, settle
from services.pooler.world import READS, SERVICE, State
from shared import subjects
from shared.service import Service

OWNS = (subjects.PLACEMENT, subjects.POOL)
KEEPS = (subjects.RUNTIME, subjects.POOLING_POLICY, subjects.ACCESS, subjects.FUNCTION)


def service() -> Service[State]:
    return Service(
        name=SERVICE,
        reads=READS,
        owns=OWNS,
        keeps=KEEPS,
        observes=(),
        new_state=State,
        fold=fold,
        decide=decide,
        settle=settle,
        observe=observe,
        attend=attend,
        queries=QUERIES,
    )
