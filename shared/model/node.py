"""Nodes: `Node` (owned by its agent), `NodeControl` (operators), `NodeStatus` and `Fleet` (the scheduler)."""

from typing import Annotated, Literal

from pydantic import Field

from shared.model.base import Record, Text, Time, UserRecord


class Capacity(Record):
    """What a node offers. 0 = unreported = unlimited."""

    cpu_millis: Annotated[int, Field(ge=0)] = 0
    memory_mb: Annotated[int, Field(ge=0)] = 0


class Node(Record):
    """`steer.node.<node>`: a machine that runs replicas. `platform` is `linux/amd64`; the label `region` spreads."""

    labels: dict[str, str] = Field(default_factory=dict)
    platform: str = ""
    capacity: Capacity = Capacity()
    address: str = "127.0.0.1"
    drivers: tuple[str, ...] = ()


class NodeControl(UserRecord):
    """`steer.node_control.<node>`: cordon (`schedulable` false), drain, and whether a drain may stop stateful ones."""

    schedulable: bool = True
    drain: bool = False
    stop_stateful: bool = False


class NodeStatus(Record):
    """`steer.node_status.<node>`: what the scheduler holds of a node."""

    state: Literal["alive", "suspect", "down"]
    drain: Literal["none", "draining", "drained"] = "none"
    since: Time
    reason: Text = ""


class Fleet(Record):
    """`steer.fleet`: how often each node sends its heartbeat, so that all together stay under 500 a second."""

    heartbeat_interval_seconds: Literal[2, 5, 10, 20] = 2
