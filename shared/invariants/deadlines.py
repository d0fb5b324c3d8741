"""6: everything that waits has its deadline in its record, and has ended by then.

A service may be without a leader for a while, or the whole control plane be down: so the end may be late. What counts is
that the service itself goes on writing, under a term that is `PATIENCE` old, and still has not ended it.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush

from pydantic import BaseModel

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.build import BuildStatus
from shared.model.deployment import Deployment
from shared.model.service import Term
from shared.model.snapshot import SnapshotOrder
from shared.runtime.encode import SERVICE
from shared.service import Version
from shared.subjects import BUILD_STATUS, DEPLOYMENT, LEASE_REQUEST, SNAPSHOT_ORDER

PATIENCE = timedelta(minutes=5)
_WAITING = frozenset({DEPLOYMENT, BUILD_STATUS, SNAPSHOT_ORDER, LEASE_REQUEST})


class DeadlinesAreKept:
    def __init__(self) -> None:
        self._deadlines: dict[str, datetime] = {}
        self._due: dict[str, list[tuple[datetime, str]]] = {}
        self._led_since: dict[str, datetime] = {}

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for version in moment.versions:
            if isinstance(version.record, Term):
                self._led_since[version.key[0]] = version.at
            elif version.kind in _WAITING:
                yield from self._take(version)
        service = moment.messages[0].headers.get(SERVICE, "")
        due, led_since = self._due.get(service, []), self._led_since.get(service)
        while due and max(due[0][0], led_since or due[0][0]) + PATIENCE < moment.at:
            deadline, subject = heappop(due)
            if self._deadlines.get(subject) == deadline:
                last = moment.messages[-1]
                yield Breach("6", last.sequence, subject, f"was to end by {deadline}, and waits at {moment.at}")

    def _take(self, version: Version) -> Iterator[Breach]:
        subject = subject_of(version)
        self._deadlines.pop(subject, None)
        if not _waits(version.record):
            return
        deadline: datetime | None = getattr(version.record, "deadline", None)
        if deadline is None:
            yield Breach("6", version.sequence, subject, "waits without a deadline")
            return
        self._deadlines[subject] = deadline
        heappush(self._due.setdefault(version.kind.owner.value, []), (deadline, subject))


def _waits(record: BaseModel | None) -> bool:
    match record:
        case Deployment() | BuildStatus():
            return not record.terminal
        case SnapshotOrder():
            return record.state == "running"
        case _:
            return record is not None
