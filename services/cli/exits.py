"""How a command ends: the exit codes, and the errors that lead to them.

SteerError                      (shared.errors)
├── Failed              1       what was asked for did not come about
│   └── Refused         2       a mistake in the arguments or in a manifest; nothing was published
├── Unavailable         3       (shared.errors) the bus, or the service that should answer, is away
├── TimedOut            4       what was waited for did not come about in time; it may still
└── Conflict            5       (shared.errors) somebody else wrote the same record first

An interruption (Ctrl-C) ends with 130, as shells have it.
"""

from enum import IntEnum

from shared.errors import ConfigurationError, Conflict, InvalidRecord, InvalidSubject, SteerError, Unavailable


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    INVALID = 2
    UNAVAILABLE = 3
    TIMED_OUT = 4
    CONFLICT = 5
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done",
    Exit.FAILED: "what was asked for did not come about; the reason is printed",
    Exit.INVALID: "a mistake in the arguments, the settings or a manifest; nothing was published",
    Exit.UNAVAILABLE: "no NATS server, or no service, answers",
    Exit.TIMED_OUT: "what was waited for did not come about in time; it may still",
    Exit.CONFLICT: "somebody else wrote the same record first; look again and repeat",
    Exit.INTERRUPTED: "interrupted",
}


class Failed(SteerError):
    """What was asked for did not come about."""


class Refused(Failed):
    """A mistake in what was asked; each line names where and why."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


class TimedOut(SteerError):
    """What was waited for did not come about in time."""


def code_of(error: SteerError) -> Exit:
    """The exit code of an error."""
    match error:
        case Conflict():
            return Exit.CONFLICT
        case Unavailable():
            return Exit.UNAVAILABLE
        case TimedOut():
            return Exit.TIMED_OUT
        case Refused() | InvalidRecord() | InvalidSubject() | ConfigurationError():
            return Exit.INVALID
        case _:
            return Exit.FAILED
