"""The keeper: versions that are older than the window go, but the newest valid one of each subject stays.

It belongs to the scheduler's leader, and a purge carries no fence: one that was decided by a leader and is carried out
after it was stopped for a while, or deposed, must do no harm. So each names one subject and a sequence.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from shared import subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.runtime import encode
from shared.subjects import Owner

from .interpreter import Instance
from .log import Log
from .wire import Stored

ROUND_SECONDS = 7.0


class Keeper:
    def __init__(self, log: Log, random: Random, instances: list[Instance[Any]], window_seconds: float) -> None:
        self._log = log
        self._random = random
        self._instances = [instance for instance in instances if instance.service.name == "scheduler"]
        self._window = timedelta(seconds=window_seconds)
        self._timeline = instances[0].timeline

    def begin(self) -> None:
        self._timeline.after(ROUND_SECONDS, self._round)

    def _round(self) -> None:
        self._timeline.after(ROUND_SECONDS, self._round)
        for instance in self._instances:
            if instance.up and not instance.paused and instance.leading:
                for subject, below in list(self._purges(instance.now() - self._window)):
                    instance.later(self._random.uniform(0.001, 2), partial(self._log.purge, subject, below))

    def _purges(self, horizon: datetime) -> Iterator[tuple[str, int]]:
        for subject in self._log.subjects():
            versions = self._log.versions_of(subject)
            old = [stored for stored in versions if stored.at < horizon and self._reads(stored)]
            if not old:
                continue
            newest = old[-1]
            if encode.is_tombstone(newest.headers) and not self._needed(newest):
                yield subject, newest.sequence + 1
            elif newest is not versions[0]:
                yield subject, newest.sequence

    def _reads(self, stored: Stored) -> bool:
        try:
            self._log.read(stored)
        except (InvalidRecord, InvalidSubject):
            return False
        return True

    def _needed(self, tombstone: Stored) -> bool:
        """Whether something else that is left carries the key of a user's tombstone."""
        kind = tombstone.kind
        if kind is None or kind.owner is not Owner.USERS:
            return False
        outlive = (subjects.ACTIVE, subjects.DECISION, subjects.NOTICE)
        return any(
            other.key[: len(tombstone.key)] == tombstone.key
            for subject in self._log.subjects()
            for other in self._log.versions_of(subject)[-1:]
            if other.subject != tombstone.subject and other.kind not in outlive
        )
