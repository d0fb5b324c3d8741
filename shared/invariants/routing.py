"""4 and 9, of content: a version of the routes says what was in the log up to the sequence that it covers.

Read anew from the records: whoever serves an environment is of its active release and deployment, is meant to run, says
that it is healthy, and stands on a node that is registered and not down; whoever serves a function has it ready. Only
what is stored together with its manifest is judged: a version of many commits was decided piece by piece.
"""

from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.invariants.view import View
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import ActiveRelease
from shared.model.node import Node, NodeStatus
from shared.model.route import Endpoint, FunctionRoute, HostRoutes, InternalService, RouteManifest
from shared.subjects import ACTIVE, ASSIGNMENT, ENVIRONMENT, INSTANCE, NODE, NODE_STATUS, Key

UP = ("running", "healthy")


def routes_say_what_was_known(moment: Moment) -> Iterator[Breach]:
    manifest = next((version for version in moment.versions if isinstance(version.record, RouteManifest)), None)
    if manifest is None or not isinstance(manifest.record, RouteManifest):
        return
    covers = manifest.record.covers
    if covers > moment.read(manifest):
        yield Breach("9", manifest.sequence, subject_of(manifest), f"covers {covers}, read was {moment.read(manifest)}")
    for version in moment.versions:
        for detail in _wrong(moment.view, version.key, version.record, covers):
            yield Breach("9", version.sequence, subject_of(version), f"{detail} at {covers}")


def _wrong(view: View, key: Key, record: object, at: int) -> Iterator[str]:
    match record:
        case InternalService(ports=ports):
            names = {port.name for port in ports}
            told = {place for port in ports for place in _places(port.endpoints)}
            known = {place for place in _candidates(view, key, told) if _serves(view, key, place, at, names)}
            yield from _difference(told, known)
        case HostRoutes(routes=routes):
            for route in routes:
                environment = tuple(route.environment.split("/"))
                told = _places(route.endpoints)
                yield from _difference(told, {place for place in told if _serves(view, environment, place, at)})
        case FunctionRoute(pool=pool, function=name, endpoints=endpoints):
            workload, told = (key[0], *pool.split("/")), _places(endpoints)
            known = {place for place in _candidates(view, workload, told) if _calls(view, workload, place, at, name)}
            yield from _difference(told, known)
        case _:
            return


def _difference(told: set[Key], known: set[Key]) -> Iterator[str]:
    if told != known:
        yield f"leads to {_names(told - known) or 'nobody'} too many, and not to {_names(known - told) or 'nobody'} else"


def _names(places: set[Key]) -> str:
    return ", ".join(sorted(place[1] for place in places))


def _places(endpoints: tuple[Endpoint, ...]) -> set[Key]:
    return {(endpoint.node, endpoint.assignment) for endpoint in endpoints}


def _candidates(view: View, workload: Key, told: set[Key]) -> set[Key]:
    """Those that there are now, and those that were routed: whoever is gone since was no endpoint any more."""
    return view.replicas(workload).keys() | told


def _runs(view: View, workload: Key, place: Key, at: int) -> Assignment | None:
    """The assignment, if it is meant to run and its node is there."""
    assignment = view.get(ASSIGNMENT, place, Assignment, at)
    status = view.get(NODE_STATUS, place[:1], NodeStatus, at)
    if assignment is None or assignment.desired != "run" or assignment.workload.key != "/".join(workload):
        return None
    down = status is not None and status.state == "down"
    return None if down or view.get(NODE, place[:1], Node, at) is None else assignment


def _serves(view: View, environment: Key, place: Key, at: int, ports: set[str] | None = None) -> bool:
    assignment, active = _runs(view, environment, place, at), view.get(ACTIVE, environment, ActiveRelease, at)
    instance, declared = view.get(INSTANCE, place, Instance, at), view.version(ENVIRONMENT, environment, at)
    if assignment is None or active is None or instance is None or (declared is not None and declared.record is None):
        return False
    is_active = assignment.release == active.version and active.deployment in ("", assignment.deployment)
    is_bound = ports is None or bool(ports & instance.ports.keys())
    return is_active and instance.state == "healthy" and is_bound


def _calls(view: View, workload: Key, place: Key, at: int, function: str) -> bool:
    assignment, instance = _runs(view, workload, place, at), view.get(INSTANCE, place, Instance, at)
    if assignment is None or instance is None:
        return False
    port = next((port.name for port in assignment.run.ports if port.protocol == "http"), "")
    return instance.state in UP and instance.members.get(function) == "ready" and port in instance.ports
