"""A service small enough to see through: it counts each environment's `Scale` up to `replicas.min`, one step a commit.

Whatever leaders do to each other, the versions of a `Scale` must be 1, 2, 3, … without a gap and without one twice. As
a program (`python -m tests.integration.toy`) it is one instance, with the settings of the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from shared.errors import SteerError
from shared.model.deployment import Scale
from shared.model.environment import Environment
from shared.runtime.run import main
from shared.runtime.settings import Settings
from shared.service import Change, Command, Decision, Plan, Sample, Service, Version
from shared.subjects import ENVIRONMENT, NODE, SCALE, Key


@dataclass
class State:
    wanted: dict[Key, int] = field(default_factory=dict)
    counted: dict[Key, int] = field(default_factory=dict)
    cause: dict[Key, int] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    samples: list[str] = field(default_factory=list)
    attended: list[datetime] = field(default_factory=list)
    settled: int = 0


def fold(state: State, version: Version) -> None:
    match version.record:
        case Environment() as environment:
            state.wanted[version.key] = environment.replicas.min
            state.cause[version.key] = version.sequence
        case Scale() as scale:
            state.counted[version.key] = scale.effective_replicas
        case None if version.kind is ENVIRONMENT:
            state.wanted.pop(version.key, None)
        case None if version.kind is SCALE:
            state.counted.pop(version.key, None)
        case None:
            state.nodes.discard(version.key[0])
        case _:
            state.nodes.add(version.key[0])


def decide(state: State, now: datetime) -> Plan:
    decisions = []
    for key in sorted(state.wanted):
        counted = state.counted.get(key, 0)
        if counted < state.wanted[key]:
            scale = Scale(effective_replicas=counted + 1, policy="resource", reason="counting", changed_at=now)
            change = Change(SCALE, key, scale)
            decisions.append(
                Decision("environment", key, f"{counted + 1}", (change,), {"counted": counted}, cause=state.cause[key])
            )
    return Plan(tuple(decisions[:400]), now if decisions else None)


def settle(state: State, plan: Plan, now: datetime) -> None:
    state.settled += 1


def observe(state: State, sample: Sample, at: datetime) -> None:
    state.samples.append(sample.name)


def attend(state: State, now: datetime) -> None:
    state.attended.append(now)


def counted(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    if "environment" not in request:
        raise SteerError("which environment?")
    return {"counted": state.counted.get(tuple(request["environment"].split("/")), 0)}


def decide_skip(state: State, request: Mapping[str, Any], now: datetime) -> Decision | None:
    """Count one further, whether it is wanted or not; `after` more than is counted waits."""
    key = tuple(str(request.get("environment", "")).split("/"))
    if len(key) != 3:
        raise SteerError("which environment?")
    if "after" in request:
        return None
    scale = Scale(effective_replicas=state.counted.get(key, 0) + 1, policy="resource", reason="skipped", changed_at=now)
    return Decision("environment", key, f"skipped for {request['id']}", (Change(SCALE, key, scale),))


def answer_skip(state: State, request: Mapping[str, Any], now: datetime) -> Mapping[str, Any] | None:
    count = state.counted.get(tuple(request["environment"].split("/")), 0)
    return {"counted": count} if count >= request.get("after", 0) else None


def service(name: str = "scheduler") -> Service[State]:
    return Service(
        name=name,
        reads=(ENVIRONMENT, NODE, SCALE),
        owns=(SCALE,),
        keeps=(ENVIRONMENT,),
        observes=("node",),
        new_state=State,
        fold=fold,
        decide=decide,
        settle=settle,
        observe=observe,
        attend=attend,
        queries={"counted": counted},
        commands={"skip": Command(decide_skip, answer_skip)},
    )


def _service(settings: Settings) -> Service[State]:
    return service()


if __name__ == "__main__":
    main(_service)
