"""What outlives the agent: one file per replica, `<data>/replicas/<assignment>.json`.

A file is written before its process is started, so a process without a file cannot be; it stays when the process has
ended, so nothing is started twice; it goes when the assignment is gone. Written beside and renamed, so it is whole.
"""

import os
from pathlib import Path

import structlog
from pydantic import Field

from shared import codec
from shared.errors import InvalidRecord
from shared.model.assignment import Instance, InstanceState
from shared.model.base import Record, Time
from shared.model.run import RunSpec

log = structlog.get_logger(__name__)


class Entry(Record):
    """One replica: what it runs, where its process is, and what became of it. `pid` None = not started (yet)."""

    assignment: str
    sequence: int
    """The version of the assignment that started it."""
    workload: str
    run: RunSpec
    config_hash: str
    volume_epoch: int = 0
    ports: dict[str, int] = Field(default_factory=dict)
    pid: int | None = None
    process_started_at: float | None = None
    state: InstanceState = "starting"
    exit_code: int | None = None
    message: str = ""
    members: dict[str, str] = Field(default_factory=dict)
    since: Time
    healthy_since: Time | None = None

    def instance(self, sequence: int) -> Instance:
        """The report that answers version `sequence` of the assignment."""
        return Instance(
            assignment_sequence=sequence,
            state=self.state,
            ports=self.ports,
            exit_code=self.exit_code,
            message=self.message,
            members=self.members,
            since=self.since,
            healthy_since=self.healthy_since,
        )


class Journal:
    """The files of one agent. Raises OSError where the disk does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, entry: Entry) -> None:
        path = self._path(entry.assignment)
        beside = path.with_suffix(".new")
        # Environment variables are in it: for the agent's eyes only.
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(codec.encode(entry))
        beside.replace(path)

    def remove(self, assignment: str) -> None:
        self._path(assignment).unlink(missing_ok=True)

    def load(self) -> list[Entry]:
        """Every entry, by id; one that cannot be read is left where it is, with an error in the log."""
        entries = []
        for path in sorted(self._directory.glob("*.json")):
            try:
                entries.append(codec.validate(Entry, str(path), path.read_bytes()))
            except (InvalidRecord, OSError) as error:
                log.error("a replica cannot be adopted: its file is unreadable", file=str(path), reason=str(error))
        return entries

    def _path(self, assignment: str) -> Path:
        return self._directory / f"{assignment}.json"
