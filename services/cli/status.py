"""`steer status`: the whole on one page: leaders, nodes, environments, what waits and why, notices."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from services.cli import fleet, names
from services.cli.explain import rendered
from services.cli.fleet import Count
from services.cli.leaders import Leader, leaders
from services.cli.output import Format, Output, age, as_json, line, table
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.world import World, loaded
from shared import subjects
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment
from shared.model.node import Node, NodeControl, NodeStatus
from shared.model.service import DecisionRecord
from shared.runtime.bus import Bus
from shared.subjects import Key

KINDS = (
    *fleet.KINDS,
    subjects.NODE,
    subjects.NODE_STATUS,
    subjects.NODE_CONTROL,
    subjects.DEPLOYMENT,
    subjects.DECISION,
)


@dataclass(frozen=True, slots=True)
class Status:
    """What is shown. The world holds the records of `KINDS`."""

    leaders: list[Leader]
    world: World
    now: datetime


def command(*, data: Data = DEFAULT_DATA, output: Output = Format.TEXT) -> None:
    """Show leaders, nodes, environments with their replicas, what waits and why, and what services warn of."""

    async def work(bus: Bus) -> None:
        status = await read(bus)
        if output is Format.JSON:
            as_json(plain(status))
        else:
            show(status)

    run(work, data)


async def read(bus: Bus) -> Status:
    """The state of the whole, as of now."""
    world = await loaded(bus, [kind.subject_filter for kind in KINDS])
    return Status(await leaders(bus), world, datetime.now(UTC))


def pending(world: World) -> dict[str, Mapping[str, Any]]:
    """What waits, with its reasons, by the name of the thing."""
    return {
        names.joined(key[2:]): record.reasons["pending"]
        for key, record in world.records(subjects.DECISION, DecisionRecord)
        if record.reasons.get("pending")
    }


def plain(status: Status) -> dict[str, Any]:
    """For programs."""
    world = status.world
    return {
        "leaders": [
            {
                "service": leader.service,
                "holder": leader.holder,
                "term": leader.term,
                "since": leader.since,
                "leads": leader.holds_lease,
            }
            for leader in status.leaders
        ],
        "nodes": [
            {"name": key[0], "node": node, "status": world.record(subjects.NODE_STATUS, key, NodeStatus)}
            for key, node in world.records(subjects.NODE, Node)
        ],
        "environments": [_plain_environment(world, key) for key, _ in world.records(subjects.ENVIRONMENT, Environment)],
        "pending": [{"name": name, "reasons": reasons} for name, reasons in pending(world).items()],
        "notices": [{"key": names.joined(key), **n.model_dump(mode="json")} for key, n in fleet.notices(world)],
    }


def _plain_environment(world: World, key: Key) -> dict[str, Any]:
    count, deployment = fleet.count(world, key), _latest(world, key)
    return {
        "name": names.joined(key),
        "version": _version(world, key),
        "desired": count.desired,
        "running": count.running,
        "healthy": count.healthy,
        "deployment": {"id": deployment[0], "phase": deployment[1].phase} if deployment else None,
    }


def show(status: Status) -> None:
    """For people."""
    world = status.world
    table(["SERVICE", "LEADER", "TERM", "FOR"], (_leader_row(each, status.now) for each in status.leaders))
    line()
    table(
        ["NODE", "STATE", "REGION", "PLATFORM", "CAPACITY", "REPLICAS"],
        (_node_row(world, key[0], node) for key, node in world.records(subjects.NODE, Node)),
    )
    line()
    table(
        ["ENVIRONMENT", "RELEASE", "DESIRED", "RUNNING", "HEALTHY", "DEPLOYMENT"],
        (_environment_row(world, key) for key, _ in world.records(subjects.ENVIRONMENT, Environment)),
    )
    for name, reasons in pending(world).items():
        line()
        line(f"{name} waits", style="yellow")
        for text in rendered(dict(reasons)):
            line(f"  {text}")
    notices = [(key, notice) for key, notice in fleet.notices(world) if notice.severity != "info"]
    if notices:
        line()
        table(
            ["NOTICE", "ABOUT", "AGE", ""],
            ((f"{n.severity}", f"{k[1]} {names.joined(k[2:])}", age(n.at, status.now), n.message) for k, n in notices),
        )


def _leader_row(leader: Leader, now: datetime) -> tuple[str, ...]:
    if not leader.holds_lease:
        last = f" (last {leader.holder})" if leader.holder else ""
        return leader.service, f"nobody{last}", str(leader.term or ""), ""
    return leader.service, leader.holder, str(leader.term), age(leader.since, now) if leader.since else ""


def _node_row(world: World, name: str, node: Node) -> tuple[str, ...]:
    status = world.record(subjects.NODE_STATUS, (name,), NodeStatus)
    control = world.record(subjects.NODE_CONTROL, (name,), NodeControl)
    state: str = status.state if status else "unknown"
    if status and status.drain != "none":
        state += f", {status.drain}"
    if control and not control.schedulable:
        state += ", cordoned"
    capacity = f"{node.capacity.cpu_millis} mCPU, {node.capacity.memory_mb} MiB"
    running = sum(replica.state in {"running", "healthy", "unhealthy"} for replica in fleet.replicas(world, node=name))
    return name, state, node.labels.get("region", ""), node.platform, capacity, str(running)


def _environment_row(world: World, key: Key) -> tuple[str, ...]:
    count: Count = fleet.count(world, key)
    deployment = _latest(world, key)
    phase = f"{deployment[1].version} {deployment[1].phase}" if deployment else ""
    return (
        names.joined(key),
        _version(world, key),
        str(count.desired),
        str(count.running),
        str(count.healthy),
        phase,
    )


def _version(world: World, key: Key) -> str:
    active = world.record(subjects.ACTIVE, key, ActiveRelease)
    return active.version if active else ""


def _latest(world: World, key: Key) -> tuple[str, Deployment] | None:
    found = world.records(subjects.DEPLOYMENT, Deployment, *key)
    if not found:
        return None
    newest, deployment = max(found, key=lambda each: each[1].requested_at_sequence)
    return newest[3], deployment
