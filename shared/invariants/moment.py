"""One commit, at the moment when it is stored: what it changes, from what, and what its decisions had read."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property

from shared.invariants.logged import Breach, Logged
from shared.invariants.view import View
from shared.model.assignment import Assignment
from shared.model.service import DecisionRecord
from shared.service import Version
from shared.subjects import ASSIGNMENT, Key


class Moment:
    """`view` is the world after it; `versions` are the records in it that can be read."""

    def __init__(self, view: View, messages: Sequence[Logged]) -> None:
        self.view = view
        self.messages = messages
        self.versions = view.apply(each.version for each in messages if each.version is not None)

    @property
    def first(self) -> int:
        return self.messages[0].sequence

    @property
    def at(self) -> datetime:
        return self.messages[-1].at

    @cached_property
    def assignments(self) -> list[Version]:
        """The assignments that it changes."""
        return [version for version in self.versions if version.kind is ASSIGNMENT]

    @cached_property
    def added(self) -> list[Version]:
        """The assignments that are new with it."""
        return [v for v in self.assignments if isinstance(v.record, Assignment) and self.before(v.key) is None]

    def before(self, key: Key) -> Assignment | None:
        """An assignment as it was before this commit."""
        return self.view.get(ASSIGNMENT, key, Assignment, self.first - 1)

    def read(self, version: Version) -> int:
        """What the decision that led to a version had read; the version's own sequence where none explains it."""
        return self._read.get(subject_of(version), version.sequence)

    @cached_property
    def _read(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for message in self.messages:
            record = message.version.record if message.version is not None else None
            if isinstance(record, DecisionRecord):
                found |= dict.fromkeys(record.changes, record.read_sequence)
        return found


def subject_of(version: Version) -> str:
    return version.kind.subject(*version.key)


def workload_of(version: Version) -> Key:
    """What an assignment belongs to: the key of an environment, or that of a pool."""
    assert isinstance(version.record, Assignment)
    return tuple(version.record.workload.key.split("/"))


Check = Callable[[Moment], Iterable[Breach]]
