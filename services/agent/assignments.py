"""The assignments of this node as the log has them: a fold of their messages.

One that cannot be read changes nothing: an earlier version stays in force, and without one it is left alone.
"""

from dataclasses import dataclass, field

import structlog

from shared.errors import InvalidRecord, InvalidSubject
from shared.model.assignment import Assignment
from shared.runtime.follower import Message
from shared.runtime.records import version_of

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment and the sequence of this version of it."""

    sequence: int
    record: Assignment


@dataclass(slots=True)
class Assignments:
    """`deleted` are tombstones that are still to be dealt with."""

    readable: dict[str, Assigned] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)

    def take(self, message: Message) -> None:
        """Fold one message. Never raises."""
        name = message.subject.rpartition(".")[2]
        try:
            version = version_of(message)
        except (InvalidRecord, InvalidSubject) as error:
            log.error("an assignment cannot be read; what runs goes on", sequence=message.sequence, reason=str(error))
            self.unreadable.add(name)
            return
        self.unreadable.discard(name)
        self.deleted.discard(name)
        if version.record is None:
            self.readable.pop(name, None)
            self.deleted.add(name)
            return
        assert isinstance(version.record, Assignment)
        before = self.readable.get(name)
        if before is not None and before.record.config_hash != version.record.config_hash:
            log.error("an assignment changed what it runs; what runs goes on", assignment=name)
        self.readable[name] = Assigned(version.sequence, version.record)

    @property
    def names(self) -> set[str]:
        return {*self.readable, *self.deleted, *self.unreadable}
