"""The log, the interpreter and the two-leader rules, proved with a toy: it holds, and each safeguard is needed."""

from datetime import timedelta
from random import Random

import pytest

from shared.invariants.terms import TermsNeverGoBack
from shared.model.environment import Environment, Replicas
from shared.subjects import ENVIRONMENT

from .bus import Bus
from .clock import Timeline
from .faults import Rates
from .follower import QUICK, SLOW
from .interpreter import Instance
from .invariants import Invariants, Violation
from .lease import Leases
from .log import Log
from .surroundings import NO_FLAWS, Flaws, Surroundings
from .toy import UNITS, LedgerIsRight, State, service
from .wire import Message, put

KEYS = [("shop", f"app-{number}", "production") for number in range(8)]
FAULTY_SECONDS = 120.0
QUIET_SECONDS = 120.0


class ToyWorld:
    """Two instances, users who change their minds, and faults; then quiet."""

    def __init__(self, seed: int, flaws: Flaws = NO_FLAWS, *, replicated: bool = False) -> None:
        self.random = Random(seed)
        self.timeline = Timeline()
        self.log = Log(lambda: self.timeline.now)
        for checker in (Invariants(self.log, only=[TermsNeverGoBack()]), LedgerIsRight(self.log)):
            self.log.watch(checker)
        self.rates = Rates(refused=0.05, lost_answer=0.05, late_landing=0.05, lost_request=0.03, lost_renewal=0.1)
        bus = Bus(self.log, self.timeline, self.random, self.rates, replicated=replicated)
        around = Surroundings(self.timeline, self.random, self.log, bus, Leases(self.timeline, 3))
        self.instances = [Instance(service(), name, around, flaws) for name in ("one", "two")]

    def run(self) -> None:
        for instance in self.instances:
            instance.start()
        self._users()
        self._trouble()
        self.timeline.run(FAULTY_SECONDS)
        self.rates.calm()
        for instance in self.instances:
            instance.follower.delay_seconds = QUICK
            instance.resume()
            instance.start()
        assert self.timeline.run(QUIET_SECONDS, self.settled), "the grants are not what was asked for"

    def settled(self) -> bool:
        environments = self.log.current(ENVIRONMENT).values()
        wanted = sum(record.replicas.min for record in environments if isinstance(record, Environment))
        return sum(sum(i.state.granted.values()) == min(wanted, UNITS) for i in self.instances if i.up) == 2

    def _users(self) -> None:
        if self.timeline.seconds > FAULTY_SECONDS:
            return
        key = self.random.choice(KEYS)
        environment = Environment(replicas=Replicas(min=self.random.randint(0, 12)))
        match self.random.random():
            case chance if chance < 0.1:
                self.log.publish(Message(ENVIRONMENT.subject(*key), b'{"replicas": {"min": "many"}}'))
            case chance if chance < 0.2:
                self.log.publish(put(ENVIRONMENT, key, None))
            case _:
                self.log.publish(put(ENVIRONMENT, key, environment))
        self.timeline.after(self.random.expovariate(1 / 1.5), self._users)

    def _trouble(self) -> None:
        if self.timeline.seconds > FAULTY_SECONDS:
            return
        instance = self.random.choice(self.instances)
        wait = self.random.uniform(0.5, 12)
        instance.follower.delay_seconds = SLOW if self.random.random() < 0.4 else QUICK
        if self.random.random() < 0.5:
            instance.crash()
            self.timeline.after(wait, instance.start)
        else:
            instance.pause()
            self.timeline.after(wait, instance.resume)
        self.timeline.after(self.random.uniform(2, 15), self._trouble)


@pytest.mark.parametrize("replicated", [False, True])
def test_the_ledger_is_right_whatever_goes_wrong(replicated: bool) -> None:
    for seed in range(25):
        ToyWorld(seed, replicated=replicated).run()


@pytest.mark.parametrize(
    "flaws",
    [Flaws(fence=False), Flaws(atomic=False), Flaws(await_term=False)],
    ids=["without the fence", "with a batch that is not atomic", "deciding before the own term is received"],
)
def test_a_missing_safeguard_is_caught(flaws: Flaws) -> None:
    caught = 0
    for seed in range(25):
        try:
            ToyWorld(seed, flaws).run()
        except Violation:
            caught += 1
    assert caught


def test_the_same_seed_gives_the_same_log() -> None:
    first, second = ToyWorld(7), ToyWorld(7)
    first.run()
    second.run()
    assert list(first.log.messages()) == list(second.log.messages())
    assert first.timeline.now - second.timeline.now == timedelta(0)


def test_an_instance_that_takes_over_knows_everything_that_was_granted() -> None:
    world = ToyWorld(1)
    world.rates.calm()
    first = world.instances[0]
    first.start()
    world.log.publish(put(ENVIRONMENT, KEYS[0], Environment(replicas=Replicas(min=3))))
    assert world.timeline.run(10, lambda: first.state.granted.get(KEYS[0]) == 3)
    first.pause()
    second: Instance[State] = world.instances[1]
    second.start()
    assert world.timeline.run(20, lambda: second.leading)
    assert second.state.granted == first.state.granted
