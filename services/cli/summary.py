"""A record in one line, for lists and for `steer watch`."""

from pydantic import BaseModel

from shared.model.assignment import Assignment, Instance
from shared.model.deployment import ActiveRelease, Deployment, Scale
from shared.model.domain import Domain
from shared.model.environment import Environment
from shared.model.function import Function
from shared.model.node import Fleet, Node, NodeControl, NodeStatus
from shared.model.pool import Pool, PoolPlacement
from shared.model.release import DeployRequest, Release
from shared.model.route import FunctionRoute, HostRoutes, InternalService, L4Route, Routed, RouteManifest
from shared.model.service import DecisionRecord, Notice, Term

MOST_FIELDS = 4


def summary(record: BaseModel | None) -> str:
    """What matters of a record; None is one that was deleted."""
    match record:
        case None:
            return "deleted"
        case Environment() | Release() | DeployRequest() | Domain() | NodeControl():
            return _of_users(record)
        case Node() | NodeStatus() | Fleet() | Instance() | Assignment():
            return _of_nodes(record)
        case Deployment() | ActiveRelease() | Scale():
            return _of_deployments(record)
        case HostRoutes() | L4Route() | InternalService() | FunctionRoute() | RouteManifest() | Routed():
            return _of_routes(record)
        case Function() | PoolPlacement() | Pool():
            return _of_pools(record)
        case Term():
            return f"led by {record.holder}"
        case DecisionRecord():
            return record.outcome
        case Notice():
            return f"{record.severity}: {record.message}"
        case _:
            return _first_fields(record)


def _first_fields(record: BaseModel) -> str:
    """Of a record without a line of its own: the first fields that say something, lists and maps by their size."""
    shown = []
    for name in type(record).model_fields:
        match getattr(record, name):
            case None | "" | 0 | False:
                continue
            case tuple() | list() | dict() as many:
                shown += [f"{len(many)} {name}"] if many else []
            case BaseModel():
                continue
            case value:
                shown.append(f"{name} {value}")
    return _joined(*shown[:MOST_FIELDS])


def _of_users(record: Environment | Release | DeployRequest | Domain | NodeControl) -> str:
    match record:
        case Environment():
            least, most = record.replicas.min, record.replicas.most
            count = f"{least}" if least == most else f"{least} to {most}"
            return _joined(f"{count} replicas", " ".join(record.service.run.command))
        case Release():
            return record.image or f"build {record.build}"
        case DeployRequest():
            verb = "roll back to" if record.rollback else "deploy"
            return f"{verb} version {record.version}" + (", canceled" if record.canceled else "")
        case Domain():
            return f"{record.hostname}{record.path_prefix} → {record.environment}"
        case NodeControl():
            return _joined("" if record.schedulable else "cordoned", "drain" if record.drain else "") or "schedulable"


def _of_nodes(record: Node | NodeStatus | Fleet | Instance | Assignment) -> str:
    match record:
        case Node():
            labels = " ".join(f"{name}={value}" for name, value in sorted(record.labels.items()))
            capacity = f"{record.capacity.cpu_millis} mCPU, {record.capacity.memory_mb} MiB"
            return _joined(record.platform, capacity, labels)
        case NodeStatus():
            return _joined(record.state, "" if record.drain == "none" else record.drain, record.reason)
        case Fleet():
            return f"a heartbeat every {record.heartbeat_interval_seconds} s"
        case Instance():
            ports = " ".join(f"{name}:{port}" for name, port in record.ports.items())
            code = "" if record.exit_code is None else f"exit code {record.exit_code}"
            return _joined(record.state, ports, code, record.message)
        case Assignment():
            release = f"release {record.release}" if record.release else ""
            return _joined(record.desired, record.workload.key, release, f"slot {record.slot}", record.reason)


def _of_deployments(record: Deployment | ActiveRelease | Scale) -> str:
    match record:
        case Deployment():
            return _joined(f"version {record.version}", record.phase, record.error)
        case ActiveRelease():
            if not record.version:
                return "nothing serves"
            return f"version {record.version}" + (f", before it {record.previous}" if record.previous else "")
        case Scale():
            return _joined(f"{record.effective_replicas} replicas", record.reason)


def _of_routes(record: HostRoutes | L4Route | InternalService | FunctionRoute | RouteManifest | Routed) -> str:
    match record:
        case HostRoutes():
            return ", ".join(
                f"{route.path_prefix or '/'} → {route.environment} ({_endpoints(len(route.endpoints))})"
                for route in record.routes
            )
        case L4Route():
            return f"{record.protocol} → {record.environment} ({_endpoints(len(record.endpoints))})"
        case InternalService():
            return _joined(record.fqdn, *(f"{p.name} ({_endpoints(len(p.endpoints))})" for p in record.ports))
        case FunctionRoute():
            return f"{record.pool} ({_endpoints(len(record.endpoints))})"
        case RouteManifest():
            return f"version {record.version}, covers {record.covers}, {record.hosts} hosts"
        case Routed():
            return f"route version {record.version}, active release of sequence {record.active_sequence}"


def _of_pools(record: Function | PoolPlacement | Pool) -> str:
    match record:
        case Function():
            worker = f"worker {record.pooling.worker}" if record.pooling.worker else "alone"
            return _joined(record.runtime, f"{record.handler} of {record.artifact}", worker)
        case PoolPlacement() if record.rejected:
            return f"rejected: {record.reason}"
        case PoolPlacement():
            moves = f"runs in {record.moving_from} until it is ready" if record.moving_from else ""
            queued = f"queued for {record.queued_for}: {record.reason}" if record.queued_for else ""
            return _joined(f"in {record.pool}" if record.pool else "nowhere yet", moves, queued)
        case Pool():
            fill = f"{len(record.members)} of {record.limit} members: {' '.join(record.members)}"
            return _joined(fill, f"{record.waiting_count} waiting" if record.waiting_count else "")


def _endpoints(count: int) -> str:
    return "1 endpoint" if count == 1 else f"{count} endpoints"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
