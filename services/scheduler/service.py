"""The scheduler as a value."""

from services.scheduler.decide import decide
from services.scheduler.drain_query import drain_query
from services.scheduler.immutable import contradicted, refuses
from services.scheduler.indexes import fold
from services.scheduler.looks import settle
from services.scheduler.observed import recall
from services.scheduler.queries import explain_query, place_query, state_query
from services.scheduler.rehearsal import rehearse
from services.scheduler.state import READS, SERVICE, State
from services.scheduler.telemetry import attend, observe
from shared import subjects
from shared.service import Service

OWNS = (
    subjects.FLEET,
    subjects.NODE_STATUS,
    subjects.ASSIGNMENT,
    subjects.DEPLOYMENT,
    subjects.ACTIVE,
    subjects.SCALE,
    subjects.VOLUME_STATUS,
    subjects.SNAPSHOT_ORDER,
    subjects.SNAPSHOT_PRUNE,
    subjects.IMAGE_SWEEP,
)
KEEPS = (subjects.ENVIRONMENT, subjects.RELEASE, subjects.DEPLOY, subjects.VOLUME, subjects.NODE_CONTROL)


def service() -> Service[State]:
    return Service(
        name=SERVICE,
        reads=READS,
        owns=OWNS,
        keeps=KEEPS,
        observes=("node", "proxy"),
        new_state=State,
        fold=fold,
        decide=decide,
        settle=settle,
        observe=observe,
        attend=attend,
        rehearse=rehearse,
        deletes=(subjects.INSTANCE,),
        refuses=refuses,
        contradicted=contradicted,
        recall=recall,
        queries={"place": place_query, "drain": drain_query, "state": state_query, "explain": explain_query},
    )
