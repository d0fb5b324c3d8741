"""What runs replicas: the seam between the agent and a machine.

A driver knows how to start, find again, watch and stop one replica. It keeps no state that matters: what must outlive
the agent is in a `Handle`, which the journal keeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shared.errors import SteerError
from shared.model.run import RunSpec


class DriverError(SteerError):
    """A replica that cannot be started, and why; the text becomes the message of its instance."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One replica to run. `workload` is `project/app/environment`; `volumes` are its directories, which are there."""

    assignment: str
    workload: str
    run: RunSpec
    volumes: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Handle:
    """A process that was started: its start time, in seconds since 1970, tells it from a later owner of the pid."""

    pid: int
    started_at: float


@dataclass(frozen=True, slots=True)
class Exit:
    """How a replica ended. `code` None = unknown, as of a process that this agent has adopted."""

    code: int | None
    message: str


class Driver(Protocol):
    """Runs replicas of the images it knows."""

    name: str

    def ports(self, launch: Launch) -> Mapping[str, int]:
        """Free host ports, by the names of the spec. They are this replica's until `release`."""
        ...

    def reserve(self, ports: Mapping[str, int]) -> None:
        """Keep the ports of an adopted replica from being given away."""
        ...

    def release(self, ports: Mapping[str, int]) -> None:
        """The ports may be given to another replica."""
        ...

    async def start(self, launch: Launch, ports: Mapping[str, int]) -> Handle:
        """Start it. Raises `DriverError`."""
        ...

    async def find(self, launch: Launch, handle: Handle | None) -> Handle | None:
        """The replica that an earlier agent started, if it still runs; `handle` None = it is not known how far it got."""
        ...

    async def wait(self, handle: Handle) -> Exit:
        """Return when it has ended, and nothing that it started is left."""
        ...

    async def stop(self, handle: Handle, grace_seconds: float) -> Exit:
        """Ask it to end, and end it after the grace. Returns when nothing of it is left."""
        ...

    async def execute(self, launch: Launch, ports: Mapping[str, int], command: Sequence[str]) -> int:
        """Run a command beside the replica, in its environment; its exit code. Ends with the caller's timeout."""
        ...
