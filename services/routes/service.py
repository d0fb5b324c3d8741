"""The service as a value."""

from functools import partial

from services.routes.decide import decide, settle
from services.routes.queries import QUERIES
from services.routes.state import State, attend, fold, observe
from services.routes.versions import recall
from services.routes.world import FOREIGN, SERVICE
from shared import subjects
from shared.service import Service
from shared.subjects import KINDS, Kind

OWNS: tuple[Kind, ...] = (
    subjects.ROUTE_HOST,
    subjects.ROUTE_L4,
    subjects.ROUTE_INTERNAL,
    subjects.ROUTE_FUNCTION,
    subjects.ROUTE_MANIFEST,
    subjects.ROUTED_ENVIRONMENT,
    subjects.ROUTED_POOL,
)
READS: tuple[Kind, ...] = (*(kind for kind in KINDS if kind in FOREIGN), *OWNS, subjects.NOTICE)


def service(cluster_domain: str = "") -> Service[State]:
    """`cluster_domain` gives every environment a host of its own; empty = none."""
    return Service(
        name=SERVICE,
        reads=READS,
        owns=OWNS,
        keeps=(subjects.DOMAIN,),
        observes=(),
        new_state=partial(State, cluster_domain),
        fold=fold,
        decide=decide,
        settle=settle,
        observe=observe,
        attend=attend,
        recall=recall,
        queries=QUERIES,
    )
