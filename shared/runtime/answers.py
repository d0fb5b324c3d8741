"""What an answer of the log to a commit means: the table of answers, pure.

What the simulator relies on: `judge` is the only place where an error code is given a meaning.

| answer | meaning |
|---|---|
| stored | `Stored` |
| 10071, no message of the commit had an expectation but the fence | `TermLost`: another leader has opened a term |
| 10071, some message had one | `Refused`: follow the log; lost if a higher term appears, else decide again |
| 10164, 10210, nobody there, any other explicit error | `NotStored`: the same bytes again, after a pause |
| none | `Unknown`: it may land later; close the connection and open a new term |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WRONG_LAST_SEQUENCE = 10071
NO_RESPONDERS = 503


@dataclass(frozen=True, slots=True)
class Stored:
    """Every message is in the log; `first` is the sequence of the first, the others follow without a gap."""

    first: int
    count: int

    @property
    def sequences(self) -> range:
        return range(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class TermLost:
    """Nothing was stored: another leader has opened a term."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was stored: some subject has another last version than the plan assumed."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotStored:
    """Nothing was stored, and trying again makes sense."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether it was stored, or will be."""

    reason: str


Outcome = Stored | TermLost | Refused | NotStored | Unknown


def judge(answer: Mapping[str, Any], count: int, has_expectations: bool) -> Outcome:
    """The meaning of the log's acknowledgement of a commit of `count` messages."""
    error = answer.get("error")
    if error is None:
        return Stored(int(answer["seq"]) - count + 1, count)
    code, description = int(error.get("err_code") or error.get("code", 0)), str(error.get("description", ""))
    if code != WRONG_LAST_SEQUENCE:
        return NotStored(code, description)
    return Refused(description) if has_expectations else TermLost()
