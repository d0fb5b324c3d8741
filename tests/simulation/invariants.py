"""The invariants (`shared.invariants`) over the log of a simulated world, commit by commit; and what is raised otherwise.

What must hold once all is quiet is `convergence`.
"""

from collections.abc import Sequence

from shared.errors import InvalidRecord, InvalidSubject
from shared.invariants.checks import Checks, every_check
from shared.invariants.logged import Logged
from shared.invariants.moment import Check
from shared.invariants.view import View

from .log import Log
from .wire import Stored


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Invariants:
    """Watches a log. Raises `Violation` for the first breach of what the log alone shows, and of the `more` checks.

    `only` takes the place of the usual ones.
    """

    def __init__(self, log: Log, *more: Check, only: Sequence[Check] | None = None) -> None:
        self._log = log
        self._checks = Checks((*(every_check() if only is None else only), *more))

    @property
    def view(self) -> View:
        return self._checks.view

    def __call__(self, stored: Sequence[Stored]) -> None:
        for breach in self._checks.take([logged(self._log, message) for message in stored]):
            raise Violation(breach.invariant, f"{breach.subject} at {breach.sequence}: {breach.detail}")


def logged(log: Log, stored: Stored) -> Logged:
    """A message of the log as the checkers are given it."""
    try:
        version = log.read(stored) if stored.kind is not None else None
    except (InvalidRecord, InvalidSubject):
        version = None
    return Logged(stored.sequence, stored.at, stored.subject, stored.headers, stored.body, version)
