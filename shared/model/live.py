"""Telemetry on `STEER_LIVE`: not part of the world, and its age is measured from receipt."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from shared.model.base import Record, Time


@dataclass(frozen=True, slots=True)
class InstanceUsage:
    """What one replica uses. One is kept for each: no model, which would take ten times the memory."""

    cpu_percent: float = 0.0
    memory_mb: float = 0.0


class NodeSample(Record):
    """`steer.live.node.<node>`: a heartbeat, with what the node and its replicas use."""

    interval_seconds: Annotated[float, Field(gt=0)]
    cpu_percent: float = 0
    memory_used_mb: float = 0
    instances: dict[str, InstanceUsage] = Field(default_factory=dict)


class Demand(Record):
    """The load of one environment at one proxy; `parked` counts held requests and those turned away."""

    inflight: Annotated[int, Field(ge=0)] = 0
    parked: Annotated[int, Field(ge=0)] = 0
    rps: float = 0
    error_rate: float = 0
    latency_p50_ms: float = 0
    latency_p99_ms: float = 0
    last_request_at: Time | None = None


class ProxySample(Record):
    """`steer.live.proxy.<proxy>`: the route version that it serves, and the demand it sees by environment."""

    version: int = 0
    digest: str = ""
    error: str = ""
    demand: dict[str, Demand] = Field(default_factory=dict)


class BuildSample(Record):
    """`steer.live.build.<pool>.<worker>`: the worker lives; `token` is that of the order it works on, if any."""

    token: str = ""


class LogLine(Record):
    """One line on `steer.log.build.<project>.<app>.<build>`, of one attempt; `end` marks the last one of it."""

    attempt: int
    worker: str
    line: str = ""
    at: Time
    end: bool = False
