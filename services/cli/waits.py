"""What an environment or a node stands at and waits for, in sentences: pending, scaling, draining. Pure.

From the records in force: the last decision about an environment says what has no place and what is held, the `Scale` why
it is as wide as it is, and each assignment on its way out what it waits for.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from services.cli import fleet
from services.cli.fleet import Replica
from services.cli.world import World
from shared import subjects
from shared.model.deployment import Scale
from shared.model.node import NodeStatus
from shared.model.service import DecisionRecord
from shared.subjects import Key

SCHEDULER = "scheduler"


def decision_key(environment: Key) -> Key:
    """Where the scheduler's last decision about an environment lies."""
    return (SCHEDULER, "environment", *environment)


def of_environment(world: World, key: Key) -> Iterator[str]:
    """What holds for an environment now."""
    yield from _decided(world, key)
    scale = world.record(subjects.SCALE, key, Scale)
    if scale is not None:
        yield from _scaled(scale)
    for replica in fleet.replicas(world, environment=key):
        yield from _on_its_way(replica)


def of_node(world: World, node: str) -> Iterator[str]:
    """What a drain of a node waits for; nothing where it does not drain."""
    status = world.record(subjects.NODE_STATUS, (node,), NodeStatus)
    if status is None or status.drain != "draining":
        return
    left = fleet.replicas(world, node=node)
    yield f"draining: {len(left)} left"
    for replica in left:
        if replica.assignment.desired != "run":
            yield from _on_its_way(replica)
            continue
        workload = replica.assignment.workload
        why = list(_decided(world, tuple(workload.key.split("/")))) if workload.kind == "environment" else []
        yield f"{replica.id} of {workload.key} runs until another is healthy" + (f" ({'; '.join(why)})" if why else "")


def _decided(world: World, environment: Key) -> Iterator[str]:
    decision = world.record(subjects.DECISION, decision_key(environment), DecisionRecord)
    reasons: Mapping[str, Any] = decision.reasons if decision is not None else {}
    pending = reasons.get("pending")
    if isinstance(pending, Mapping) and pending:
        filters = pending.get("rejected", {})
        why = ", ".join(f"{name} {count}" for name, count in filters.items()) or "there are no nodes"
        count = f"{pending.get('missing')} of {pending.get('wanted')}"
        yield f"pending: {count} replicas have no place; nodes ruled out: {why}"
    if isinstance(held := reasons.get("held"), str):
        yield f"held: {held}"


def _scaled(scale: Scale) -> Iterator[str]:
    yield f"scaled to {scale.effective_replicas} by {scale.policy} at {scale.changed_at:%H:%M:%S}: {scale.reason}"
    if scale.low_since is not None:
        yield f"scaling down is held since {scale.low_since:%H:%M:%S}: {scale.low_peak} replicas would have been enough"


def _on_its_way(replica: Replica) -> Iterator[str]:
    record = replica.assignment
    name = f"{replica.id} on {replica.node}"
    if record.desired == "drain":
        until = f", at the latest at {record.drain_deadline:%H:%M:%S}" if record.drain_deadline is not None else ""
        yield f"{name} drains until the routes and the proxies have moved on{until}: {record.reason}"
    elif record.desired == "stop":
        yield f"{name} is to stop, and is {replica.state}: {record.reason}"
    elif record.not_before is not None and replica.state in ("not answered", "pending"):
        yield f"{name} is held back until {record.not_before:%H:%M:%S}, after {record.attempt} failed attempts"


def environments(world: World, kind: subjects.Kind, key: Key) -> list[Key]:
    """The environments whose decisions are needed."""
    if kind is subjects.ENVIRONMENT:
        return [key]
    if kind is not subjects.NODE:
        return []
    workloads = [replica.assignment.workload for replica in fleet.replicas(world, node=key[0])]
    return sorted({tuple(each.key.split("/")) for each in workloads if each.kind == "environment"})
