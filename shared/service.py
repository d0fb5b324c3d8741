"""What a service is: a value. Pure types; `shared.runtime` interprets them, and so does the simulator.

    follow → fold → decide → commit → fold what was committed → wait for the next record or `wake_at`

`fold` puts one version of one record into the state; per subject the highest sequence wins. `observe` takes telemetry.
`decide(state, now)` looks at the whole state, never at what woke it, and changes nothing; what it plans is committed
atomically and fenced, then folded. `settle` tells the state that a pass is done: what it looked at needs no second look.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from shared.subjects import Key, Kind

State = TypeVar("State")

MAX_BATCH = 1000
"""The most messages that the server stores in one atomic batch."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

# What there is one of per message is a named tuple: a frozen dataclass takes four times as long to make.


class Version(NamedTuple):
    """One version of one record. `record` None = deleted. `at` is the server's timestamp.

    `restores`, where not 0, is the sequence of the earlier version that this one repeats; its own, where it answers a
    message that does not count and there was no version before.
    """

    kind: Kind
    key: Key
    sequence: int
    record: BaseModel | None
    at: datetime
    restores: int = 0


class Change(NamedTuple):
    """A record to be written; `record` None = delete. `expected` is the last sequence that its subject must have."""

    kind: Kind
    key: Key
    record: BaseModel | None
    expected: int | None = None

    @property
    def subject(self) -> str:
        return self.kind.subject(*self.key)


class Decision(NamedTuple):
    """What was decided about one thing, and why: `changes` and the explanation are stored together or not at all.

    `about` and `key` name the thing (`environment`, `(shop, web, production)`). `cause` is the sequence of the record
    that led to it, 0 where time did. With `explain` false nothing is recorded beside the changes.
    """

    about: str
    key: Key
    outcome: str
    changes: tuple[Change, ...] = ()
    reasons: Mapping[str, Any] = NOTHING
    observation: Mapping[str, Any] = NOTHING
    cause: int = 0
    explain: bool = True

    @property
    def size(self) -> int:
        """How many messages it is."""
        return len(self.changes) + self.explain


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of one pass: at most `MAX_BATCH` messages, and when to look again (None = at the next record)."""

    decisions: tuple[Decision, ...] = ()
    wake_at: datetime | None = None
    looks: Mapping[Any, Any] = field(default_factory=dict)
    """What the pass looked at, for `settle`; the interpreter passes it on, also of a pass that decided nothing."""

    @property
    def size(self) -> int:
        return sum(decision.size for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class Sample:
    """One message of telemetry: `source` is `node` or `proxy`, `name` who sent it."""

    source: str
    name: str
    body: BaseModel


Query = Callable[[Any, Mapping[str, Any], datetime], Mapping[str, Any]]
"""`query(state, request, now) → reply`: read-only. Raises `SteerError` for a request that it refuses."""


@dataclass(frozen=True, slots=True)
class Command:
    """A request that changes something: the leader alone takes it, and answers after its commit.

    `decide(state, request, now)` gives what is to be stored, None = nothing. `answer(state, request, now)` gives the
    reply from the state after that, None = not yet: it is asked again after every pass. Both raise `SteerError` for what
    they refuse. Every request has an `id`; the runtime makes one where the client sends none.
    """

    decide: Callable[[Any, Mapping[str, Any], datetime], Decision | None]
    answer: Callable[[Any, Mapping[str, Any], datetime], Mapping[str, Any] | None]


def _refuses_nothing(state: Any, version: Version) -> str:
    return ""


def _nothing_contradicted(state: Any) -> Iterable[tuple[Version, str]]:
    return ()


def _nothing_observed(state: Any, commit: Sequence[Version], now: datetime) -> None:
    pass


def _nothing_rehearsed(state: Any, now: datetime) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Service(Generic[State]):
    """One event processor.

    `reads` are the kinds that it follows, its own included (of decisions and notices only those of this service);
    `owns` those that it alone writes (beside its terms, decisions and notices); `keeps` the user-owned kinds that it
    validates, quarantines and restores; `observes` the telemetry it takes (`node`, `proxy`, `build`).

    `attend(state, now)` says that telemetry is heard from `now` on: called when a term is won and after a reconnect,
    so that nobody is held silent for a time in which nobody listened.
    """

    name: str
    reads: tuple[Kind, ...]
    owns: tuple[Kind, ...]
    keeps: tuple[Kind, ...]
    observes: tuple[str, ...]
    new_state: Callable[[], State]
    fold: Callable[[State, Version], None]
    decide: Callable[[State, datetime], Plan]
    settle: Callable[[State, Plan, datetime], None]
    observe: Callable[[State, Sample, datetime], None]
    attend: Callable[[State, datetime], None]
    queries: Mapping[str, Query]
    commands: Mapping[str, Command] = field(default_factory=dict)
    deletes: tuple[Kind, ...] = ()
    """Kinds of doers whose records it deletes: what a node has left that was taken out of service."""
    refuses: Callable[[State, Version], str] = _refuses_nothing
    """Why a valid version of a kind that it keeps must not come into force, given the state; empty where it may."""
    contradicted: Callable[[State], Iterable[tuple[Version, str]]] = _nothing_contradicted
    """The versions that a load brought into the state and `refuses` would not have, with the reason."""
    recall: Callable[[State, Sequence[Version], datetime], None] = _nothing_observed
    """To make the decisions of a commit again: put back, from their explanations, what they had observed at that time. A
    service that takes telemetry also leaves only what the commit is about to be looked at."""
    rehearse: Callable[[State, datetime], bool] = _nothing_rehearsed
    """What a standby does now and then, so that it has little to look at when it leads: it decides, keeps nothing of it,
    and settles what it looked at in vain. True if more is left; telemetry heard before counts as not heard."""
