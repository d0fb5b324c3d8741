"""What the runtime does about whatever goes wrong: the one table. Pure.

| what | reaction |
|---|---|
| the log or JetStream does not answer, nothing was stored | retry, after a pause |
| another subject's last version is not the expected one | decide again, when the log has moved |
| a commit's outcome is unknown | open a new term on a new connection |
| a higher term, a lost lease | lose the term, and give the lease back |
| a message cannot be read | quarantine (`world` sets it aside, `repair` answers it) |
| messages were lost, the log was replaced, a fault in a service | drop the state, load the log anew |
"""

from enum import Enum

import nats.errors

from shared.errors import SteerError
from shared.runtime.answers import NotStored, Outcome, Refused, Stored, TermLost, Unknown


class Reaction(Enum):
    GO_ON = "go on"
    RETRY = "retry"
    DECIDE_AGAIN = "decide again"
    NEW_TERM = "open a new term"
    LOSE_TERM = "lose the term"
    FOLLOW_ANEW = "follow anew"


_TO_OUTCOMES: dict[type, Reaction] = {
    Stored: Reaction.GO_ON,
    NotStored: Reaction.RETRY,
    Refused: Reaction.DECIDE_AGAIN,
    Unknown: Reaction.NEW_TERM,
    TermLost: Reaction.LOSE_TERM,
}
_TO_ERRORS: tuple[tuple[type[BaseException], Reaction], ...] = (
    (SteerError, Reaction.RETRY),
    (TimeoutError, Reaction.RETRY),
    (OSError, Reaction.RETRY),
    (nats.errors.Error, Reaction.RETRY),
    (Exception, Reaction.FOLLOW_ANEW),
)


def to_outcome(outcome: Outcome) -> Reaction:
    """To the answer of the log to a commit."""
    return _TO_OUTCOMES[type(outcome)]


def to_error(error: Exception) -> Reaction:
    """To an exception: one of the bus passes by itself, any other is a fault in the code or in the state."""
    return next(reaction for kind, reaction in _TO_ERRORS if isinstance(error, kind))
