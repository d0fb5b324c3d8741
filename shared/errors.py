"""The errors of Steersman.

SteerError
├── InvalidSubject      a subject that is not one of ours
├── InvalidRecord       a body that its model refuses; names every field and reason
├── ConfigurationError  a setting that cannot be used
├── Conflict            a write expected another last version of its subject
├── RequestRefused      a service answered a request with an error
└── Unavailable         the bus, or the service that should answer, is away
"""

from dataclasses import dataclass


class SteerError(Exception):
    """Any error that a user of Steersman may see."""


class InvalidSubject(SteerError):
    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject}: {reason}")
        self.subject = subject
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the path of the field (`service.run.ports.0.name`; empty = the whole) and the reason."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class InvalidRecord(SteerError):
    def __init__(self, subject: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(f"{subject}: " + "; ".join(map(str, problems)))
        self.subject = subject
        self.problems = problems


class ConfigurationError(SteerError):
    """A setting that is missing or cannot be used."""


class Unavailable(SteerError):
    """The bus, or the service that should answer, is away."""


class Conflict(SteerError):
    """Somebody wrote first: the last sequence of the subject is not the expected one."""


class RequestRefused(SteerError):
    """A service answered, and refused: the text says why. With `not_now` the same request may be taken a little later."""

    def __init__(self, reason: str, *, not_now: bool = False) -> None:
        super().__init__(reason)
        self.not_now = not_now
