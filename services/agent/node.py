"""What the node is: its record, detected where nothing is given."""

import platform
import sys

import psutil

from services.agent.config import AgentConfig
from shared.model.node import Capacity, Node

_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
MIB = 1024 * 1024


def describe(config: AgentConfig, drivers: tuple[str, ...]) -> Node:
    """The record of this node. Of the capacity, what is given counts; the rest is what the machine has."""
    cpu_millis, memory_mb = config.capacity_cpu_millis, config.capacity_memory_mb
    if cpu_millis is None:
        cpu_millis = (psutil.cpu_count(logical=True) or 1) * 1000
    if memory_mb is None:
        memory_mb = psutil.virtual_memory().total // MIB
    return Node(
        labels=dict(config.labels),
        platform=config.platform or detected_platform(),
        capacity=Capacity(cpu_millis=cpu_millis, memory_mb=memory_mb),
        address=config.address,
        drivers=drivers,
    )


def detected_platform() -> str:
    """`linux/amd64`, as images name their platforms."""
    machine = platform.machine().lower()
    return f"{sys.platform}/{_MACHINES.get(machine, machine)}"
