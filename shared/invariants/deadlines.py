"""6: everything that waits has its deadline in its record, and has ended by then.

A service may be without a leader for a while, so that an end may be late; but not for longer than `PATIENCE`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush

from pydantic import BaseModel

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment, subject_of
from shared.model.build import BuildStatus
from shared.model.deployment import Deployment
from shared.model.snapshot import SnapshotOrder
from shared.subjects import BUILD_STATUS, DEPLOYMENT, LEASE_REQUEST, SNAPSHOT_ORDER

PATIENCE = timedelta(minutes=5)
_WAITING = frozenset({DEPLOYMENT, BUILD_STATUS, SNAPSHOT_ORDER, LEASE_REQUEST})


class DeadlinesAreKept:
    def __init__(self) -> None:
        self._deadlines: dict[str, datetime] = {}
        self._due: list[tuple[datetime, str]] = []

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for version in moment.versions:
            if version.kind not in _WAITING:
                continue
            subject = subject_of(version)
            self._deadlines.pop(subject, None)
            if not _waits(version.record):
                continue
            deadline: datetime | None = getattr(version.record, "deadline", None)
            if deadline is None:
                yield Breach("6", version.sequence, subject, "waits without a deadline")
            else:
                self._deadlines[subject] = deadline
                heappush(self._due, (deadline, subject))
        while self._due and self._due[0][0] + PATIENCE < moment.at:
            deadline, subject = heappop(self._due)
            if self._deadlines.get(subject) == deadline:
                last = moment.messages[-1]
                yield Breach("6", last.sequence, subject, f"was to end by {deadline}, and waits at {moment.at}")


def _waits(record: BaseModel | None) -> bool:
    match record:
        case Deployment() | BuildStatus():
            return not record.terminal
        case SnapshotOrder():
            return record.state == "running"
        case _:
            return record is not None
