"""A service small enough to see through: it grants units of one pool, and keeps a ledger of what it has granted.

An `Environment` asks for `replicas.min` units. A grant is two records that belong together, the environment's `Scale` and
the ledger, which counts grants and units. It proves the interpreter: each safeguard that is left out breaks one of the
ledger's rules (`LedgerIsRight`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shared.model.deployment import Scale
from shared.model.environment import Environment
from shared.model.route import RouteManifest
from shared.service import Change, Decision, Plan, Service, Version
from shared.subjects import ENVIRONMENT, ROUTE_MANIFEST, SCALE, Key

from .invariants import Violation
from .log import Log
from .wire import Stored

UNITS = 40
EMPTY = RouteManifest(version=0, covers=0, digest="")


@dataclass
class State:
    sequences: dict[str, int] = field(default_factory=dict)
    wanted: dict[Key, tuple[int, int]] = field(default_factory=dict)
    granted: dict[Key, int] = field(default_factory=dict)
    ledger: RouteManifest = EMPTY


def fold(state: State, version: Version) -> None:
    subject = version.kind.subject(*version.key)
    if version.sequence <= state.sequences.get(subject, 0):
        return
    state.sequences[subject] = version.sequence
    match version.record:
        case Environment() as environment:
            state.wanted[version.key] = (environment.replicas.min, version.restores or version.sequence)
        case Scale() as scale:
            state.granted[version.key] = scale.effective_replicas
        case RouteManifest() as ledger:
            state.ledger = ledger
        case None if version.kind is ENVIRONMENT:
            state.wanted.pop(version.key, None)
        case None if version.kind is SCALE:
            state.granted.pop(version.key, None)
        case _:
            pass


def decide(state: State, now: datetime) -> Plan:
    """One grant a pass: first what is given back, then who asked first."""
    for key in sorted(state.granted):
        if state.granted[key] > state.wanted.get(key, (0, 0))[0]:
            return _grant(state, key, state.wanted.get(key, (0, 0))[0], now)
    free = UNITS - sum(state.granted.values())
    for key in sorted(state.wanted, key=lambda key: state.wanted[key][1]):
        wanted, have = state.wanted[key][0], state.granted.get(key, 0)
        if wanted > have and free:
            return _grant(state, key, min(wanted, have + free), now)
    return Plan(wake_at=now + timedelta(seconds=30))


def _grant(state: State, key: Key, units: int, now: datetime) -> Plan:
    scale = Scale(effective_replicas=units, policy="resource", changed_at=now) if units else None
    total = sum(state.granted.values()) - state.granted.get(key, 0) + units
    ledger = RouteManifest(version=state.ledger.version + 1, covers=0, digest="", hosts=total)
    changes = (Change(SCALE, key, scale), Change(ROUTE_MANIFEST, (), ledger))
    return Plan((Decision("environment", key, f"{units} units", changes, explain=False),), now)


def service() -> Service[State]:
    return Service(
        name="scheduler",
        reads=(ENVIRONMENT, SCALE, ROUTE_MANIFEST),
        owns=(SCALE, ROUTE_MANIFEST),
        keeps=(ENVIRONMENT,),
        observes=(),
        new_state=State,
        fold=fold,
        decide=decide,
        settle=lambda state, plan, now: None,
        observe=lambda state, sample, now: None,
        attend=lambda state, now: None,
        queries={},
    )


class LedgerIsRight:
    """At every prefix: no more units than there are, the ledger's sum is right, and it counts every grant once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._state = State()

    def __call__(self, stored: Sequence[Stored]) -> None:
        before = self._state.ledger.version
        for message in stored:
            if message.kind in (SCALE, ROUTE_MANIFEST):
                fold(self._state, self._log.read(message))
            if message.kind is ROUTE_MANIFEST and self._state.ledger.version != before + 1:
                raise Violation("ledger", f"grant {self._state.ledger.version} follows grant {before}")
        total = sum(self._state.granted.values())
        if total > UNITS:
            raise Violation("ledger", f"{total} of {UNITS} units are granted")
        if total != self._state.ledger.hosts:
            raise Violation("ledger", f"{total} units are granted, the ledger says {self._state.ledger.hosts}")
