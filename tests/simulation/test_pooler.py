"""Two poolers on one log with faults, users who change their minds, and hosts that load: pools are right at every prefix,
and once all is quiet every function is where the policy says."""

from random import Random

from services.pooler.service import service
from services.pooler.world import State
from shared import subjects
from shared.codec import config_hash
from shared.invariants.pools import pools_have_their_members
from shared.invariants.terms import TermsNeverGoBack
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.pool import Pool

from .bus import Bus
from .clock import Timeline
from .faults import Rates
from .follower import QUICK, SLOW
from .function_users import FunctionUsers
from .interpreter import Instance as Service
from .invariants import Invariants, Violation
from .lease import Leases
from .log import Log
from .pool_order import unmet_placements
from .pool_safety import MembersAreMeant
from .surroundings import NO_FLAWS, Flaws, Surroundings
from .wire import put

FAULTY_SECONDS = 120.0
QUIET_SECONDS = 900.0


class PoolerWorld:
    def __init__(self, seed: int, flaws: Flaws = NO_FLAWS, *, replicated: bool = False) -> None:
        self.random = random = Random(seed)
        self.timeline = timeline = Timeline()
        self.log = log = Log(lambda: timeline.now)
        right = Invariants(log, only=[TermsNeverGoBack(), pools_have_their_members])
        for checker in (right, MembersAreMeant(log)):
            log.watch(checker)
        self.rates = Rates(refused=0.05, lost_answer=0.05, late_landing=0.05, lost_request=0.03, lost_renewal=0.1)
        bus = Bus(log, timeline, random, self.rates, replicated=replicated)
        around = Surroundings(timeline, random, log, bus, Leases(timeline, 3))
        self.instances: list[Service[State]] = [Service(service(), name, around, flaws) for name in ("one", "two")]

    def run(self) -> None:
        for instance in self.instances:
            instance.start()
        users = FunctionUsers(self.log, self.timeline, self.random, 1.5, 8)
        users.begin()
        self._hosts()
        self._trouble()
        self.timeline.run(FAULTY_SECONDS)
        users.rest()
        self.rates.calm()
        for instance in self.instances:
            instance.follower.delay_seconds = QUICK
            instance.resume()
            instance.start()
        if not self.timeline.run(QUIET_SECONDS, lambda: not self.unmet()):
            raise Violation("liveness", self.unmet())

    def unmet(self) -> str:
        """What is not yet as the policy says; empty once all is."""
        return unmet_placements(self.log)

    def _hosts(self) -> None:
        """A scheduler and an agent in one: every pool gets a worker, which says some time what it has loaded."""
        for key, pool in self.log.current(subjects.POOL).items():
            if isinstance(pool, Pool) and pool.desired and self.random.random() < 0.5:
                place = ("n1", f"{key[2].lstrip('_')}-{key[3][:6]}-{pool.signature[:6]}")
                assignment = Assignment(
                    workload=WorkloadRef(kind="pool", key="/".join(key)),
                    run=pool.run,
                    config_hash=config_hash(pool.run, pool.resources),
                    resources=pool.resources,
                    created_at=self.timeline.now,
                )
                states = {name: self.random.choice(["ready", "ready", "loading", "failed"]) for name in pool.members}
                instance = Instance(assignment_sequence=1, state="healthy", members=states, since=self.timeline.now)
                self.log.publish(put(subjects.ASSIGNMENT, place, assignment))
                self.log.publish(put(subjects.INSTANCE, place, instance))
        self.timeline.after(self.random.uniform(1, 4), self._hosts)

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


def test_pools_are_right_whatever_goes_wrong_and_everybody_finds_a_place_in_the_end() -> None:
    for seed in range(12):
        PoolerWorld(seed, replicated=seed % 2 == 1).run()


def test_without_the_fence_it_would_be_seen() -> None:
    caught = 0
    for seed in range(12):
        try:
            PoolerWorld(seed, Flaws(fence=False)).run()
        except Violation:
            caught += 1
    assert caught
