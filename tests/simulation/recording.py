"""What one instance of a service has lived through, so that the laws of `test_laws` can be asked of any moment of it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from shared.runtime import encode
from shared.service import Plan, Sample, Service, Version

COALESCED = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class Moment:
    """A decision as it was made: `folded` and `heard` count what had happened before it; what was heard before
    `forgotten` did not count any more."""

    folded: int
    forgotten: int
    heard: int
    now: datetime
    plan: Plan

    @property
    def waits_for_more(self) -> bool:
        return self.plan.wake_at is not None and self.plan.wake_at - self.now < COALESCED


@dataclass(slots=True)
class Recording:
    """One life of an instance, from its load on."""

    service: Service[Any]
    folds: list[Version] = field(default_factory=list)
    telemetry: list[tuple[Sample | None, datetime]] = field(default_factory=list)
    """What was observed, and when; None where it attended."""
    forgotten: int = 0
    moments: list[Moment] = field(default_factory=list)

    def versions(self, moment: Moment) -> list[Version]:
        return self.folds[: moment.folded]

    def state(self, moment: Moment, versions: Iterable[Version]) -> Any:
        """A new state that has folded these versions and heard what had been heard."""
        state = self.service.new_state()
        for version in versions:
            self.service.fold(state, version)
        for sample, at in self.telemetry[moment.forgotten : moment.heard]:
            if sample is None:
                self.service.attend(state, at)
            else:
                self.service.observe(state, sample, at)
        return state

    def sampled(self, random: Random, count: int) -> list[Moment]:
        """Some moments: of those at which something was decided, and of those that found nothing to decide (a service
        that waits a little for more to come has not looked yet)."""
        decided = [moment for moment in self.moments if moment.plan.decisions]
        quiet = [moment for moment in self.moments if not moment.plan.decisions and not moment.waits_for_more]
        return [
            *random.sample(decided, min(count, len(decided))),
            *random.sample(quiet, min(count // 4 + 1, len(quiet))),
        ]


def recorded(make: Callable[[], Service[Any]], lives: list[Recording]) -> Callable[[], Service[Any]]:
    """A maker of the same service, each of whose states is recorded."""

    def make_recorded() -> Service[Any]:
        service = make()
        current: list[Recording] = []

        def new_state() -> Any:
            current[:] = [Recording(service)]
            lives.append(current[0])
            return service.new_state()

        def fold(state: Any, version: Version) -> None:
            current[0].folds.append(version)
            service.fold(state, version)

        def observe(state: Any, sample: Sample, at: datetime) -> None:
            current[0].telemetry.append((sample, at))
            service.observe(state, sample, at)

        def attend(state: Any, at: datetime) -> None:
            current[0].telemetry.append((None, at))
            service.attend(state, at)

        def decide(state: Any, now: datetime) -> Plan:
            plan = service.decide(state, now)
            life = current[0]
            life.moments.append(Moment(len(life.folds), life.forgotten, len(life.telemetry), now, plan))
            return plan

        def rehearse(state: Any, now: datetime) -> bool:
            current[0].forgotten = len(current[0].telemetry)
            return service.rehearse(state, now)

        made = replace(service, new_state=new_state, fold=fold, observe=observe, attend=attend)
        return replace(made, decide=decide, rehearse=rehearse)

    return make_recorded


def last_per_subject(versions: Sequence[Version]) -> list[Version]:
    """What a load gives: the newest of each subject, tombstones included, in order."""
    newest: dict[str, Version] = {}
    for version in versions:
        subject = version.kind.subject(*version.key)
        if subject not in newest or newest[subject].sequence < version.sequence:
            newest[subject] = version
    return sorted(newest.values(), key=lambda version: version.sequence)


def mixed(versions: Sequence[Version], random: Random) -> list[Version]:
    """The same versions, those of one subject in their order, those of different ones in any; and some twice."""
    queues: dict[str, list[Version]] = {}
    for version in versions:
        queues.setdefault(version.kind.subject(*version.key), []).append(version)
    turns = [subject for subject, queue in queues.items() for _ in queue]
    random.shuffle(turns)
    found: list[Version] = []
    for subject in turns:
        found.append(queues[subject].pop(0))
        if random.random() < 0.2:
            found.append(found[-1])
    return found


def written(service: Service[Any], plan: Plan, now: datetime) -> list[tuple[str, bytes, int | None]]:
    """A plan as what it would store: two plans are the same if and only if this is. The cause is a hint for people: of
    several records that lead to one decision, it names the one that came last."""
    messages = encode.messages(service.name, plan, 0, now)
    return [(message.subject, message.body, message.expected) for message in messages]
