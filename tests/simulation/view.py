"""The world as an observer of the whole log sees it: every record as it stands, and as it was at a sequence."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from shared.errors import InvalidRecord, InvalidSubject
from shared.model.assignment import Assignment, Instance
from shared.model.deployment import ActiveRelease
from shared.model.environment import Environment
from shared.model.node import Node, NodeStatus
from shared.service import Version
from shared.subjects import ACTIVE, ASSIGNMENT, DECISION, ENVIRONMENT, INSTANCE, NODE, NODE_STATUS, NOTICE, Key, Kind

from .log import Log
from .wire import Stored

M = TypeVar("M", bound=BaseModel)
NEWEST = 1 << 62


class View:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._history: dict[tuple[Kind, Key], list[Version]] = defaultdict(list)
        self.keys: dict[Kind, dict[Key, None]] = defaultdict(dict)
        """The keys of each kind that have a record now."""

    def apply(self, stored: Sequence[Stored]) -> list[Version]:
        """Take in what was stored; the versions that can be read."""
        found = []
        for message in stored:
            if message.kind is None or message.kind in (DECISION, NOTICE):
                continue
            try:
                version = self._log.read(message)
            except (InvalidRecord, InvalidSubject):
                continue
            self._history[version.kind, version.key].append(version)
            if version.record is None:
                self.keys[version.kind].pop(version.key, None)
            else:
                self.keys[version.kind][version.key] = None
            found.append(version)
        return found

    def version(self, kind: Kind, key: Key, at: int = NEWEST) -> Version | None:
        """The newest version up to a sequence."""
        history = self._history.get((kind, key), ())
        position = bisect_right(history, at, key=lambda version: version.sequence)
        return history[position - 1] if position else None

    def get(self, kind: Kind, key: Key, model: type[M], at: int = NEWEST) -> M | None:
        version = self.version(kind, key, at)
        return version.record if version is not None and isinstance(version.record, model) else None

    def all(self, kind: Kind, model: type[M]) -> dict[Key, M]:
        return {key: record for key in self.keys[kind] if (record := self.get(kind, key, model)) is not None}

    # -- what several invariants ask ----------------------------------------------------------------------------------

    def gone(self, key: Key, at: int = NEWEST) -> bool:
        """Whether the replica of an assignment has ended."""
        instance = self.get(INSTANCE, key, Instance, at)
        return instance is not None and instance.state in ("failed", "stopped")

    def lost(self, node: str, at: int = NEWEST) -> bool:
        """Whether a node is down or decommissioned. Its status is the scheduler's own record: it knows the newest."""
        status = self.get(NODE_STATUS, (node,), NodeStatus)
        return (status is not None and status.state == "down") or self.get(NODE, (node,), Node, at) is None

    def healthy(self, key: Key, at: int = NEWEST) -> bool:
        instance = self.get(INSTANCE, key, Instance, at)
        return instance is not None and instance.state == "healthy" and not self.lost(key[0], at)

    def desired(self, environment: Key, at: int = NEWEST) -> int:
        """How many replicas an environment should have. Without a record it is held as it was: its last one counts."""
        record = self.get(ENVIRONMENT, environment, Environment, at)
        active = self.get(ACTIVE, environment, ActiveRelease, at)
        return record.replicas.min if record is not None and active is not None and active.version else 0

    def replicas(self, environment: Key) -> dict[Key, Assignment]:
        name = "/".join(environment)
        return {key: a for key, a in self.all(ASSIGNMENT, Assignment).items() if a.workload.key == name}
