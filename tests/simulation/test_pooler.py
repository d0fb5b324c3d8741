"""Two poolers on one log with faults, users who change their minds, and hosts that load: pools are right at every prefix,
and once all is quiet every function is where the policy says."""

from collections.abc import Sequence
from random import Random

import orjson

from services.pooler.access import PoolKey, pool_of
from services.pooler.assign import ByName, Declared
from services.pooler.hosting import row
from services.pooler.service import service
from services.pooler.world import State
from shared import subjects
from shared.codec import config_hash
from shared.invariants.pools import pools_have_their_members
from shared.invariants.terms import TermsNeverGoBack
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.function import Function, FunctionAccess, Pooling
from shared.model.pool import Pool, PoolingPolicy, PoolPlacement, Runtime
from shared.model.run import PortSpec, RunSpec
from shared.service import Version
from shared.subjects import Key

from .bus import Bus
from .clock import Timeline
from .faults import Rates
from .follower import QUICK, SLOW
from .interpreter import Instance as Service
from .invariants import Invariants, Violation
from .lease import Leases
from .log import Log
from .surroundings import NO_FLAWS, Flaws, Surroundings
from .wire import Message, Stored, put

NS = "shop"
NAMES = [f"f{number}" for number in range(8)]
LIMIT = 2
FAULTY_SECONDS = 120.0
QUIET_SECONDS = 900.0
HOST = Runtime(run=RunSpec(image="host", command=("host",), ports=(PortSpec(name="http", container_port=80),)))


class MembersAreMeant:
    """At every prefix: each member of a pool has a row that it was allowed to have in that pool."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._functions: dict[str, Function | None] = {}
        self._access: dict[str, FunctionAccess | None] = {}
        self._allowed: set[tuple[str, str]] = set()

    def __call__(self, stored: Sequence[Stored]) -> None:
        versions = []
        for message in stored:
            try:
                versions.append(self._log.read(message))
            except Exception:
                assert message.kind is subjects.FUNCTION  # what a user got wrong
        for version in versions:
            self._take(version)

    def _take(self, version: Version) -> None:
        name, record = version.key[-1], version.record
        if version.kind is subjects.FUNCTION:
            self._functions[name] = record if isinstance(record, Function) else None
        elif version.kind is subjects.ACCESS:
            self._access[name] = record if isinstance(record, FunctionAccess) else None
        elif version.kind is subjects.POOL:
            self._check_pool(version.key, record if isinstance(record, Pool) else None)
            return
        function = self._functions.get(name)
        if function is not None:
            told = orjson.dumps(row(name, function)).decode()
            self._allowed.add((str(pool_of(NS, name, function, self._access.get(name))), told))

    def _check_pool(self, key: Key, pool: Pool | None) -> None:
        for each in orjson.loads(pool.run.env["STEER_MEMBERS"]) if pool is not None and pool.members else []:
            if (str(PoolKey(*key)), orjson.dumps(each).decode()) not in self._allowed:
                raise Violation("pools", f"{each} was never to be in {key}")


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
        self.log.publish(put(subjects.RUNTIME, ("python",), HOST))
        self.log.publish(put(subjects.POOLING_POLICY, (NS,), PoolingPolicy(limit=LIMIT)))
        self._users()
        self._hosts()
        self._trouble()
        self.timeline.run(FAULTY_SECONDS)
        self.rates.calm()
        for instance in self.instances:
            instance.follower.delay_seconds = QUICK
            instance.resume()
            instance.start()
        if not self.timeline.run(QUIET_SECONDS, lambda: not self.unmet()):
            raise Violation("liveness", self.unmet())

    def unmet(self) -> str:
        """What is not yet as the policy says; empty once all is."""
        functions = self.log.current(subjects.FUNCTION)
        placements = self.log.current(subjects.PLACEMENT)
        if placements.keys() != functions.keys():
            return f"placed are {sorted(placements)}, declared {sorted(functions)}"
        declared = [Declared(key[1], self._pool_of(key)) for key in functions]
        pools = self.log.current(subjects.POOL)
        for each in declared:
            assert each.key is not None
            found = ByName().assign(each, each.key, declared, LIMIT)
            placement = placements[NS, each.name]
            assert isinstance(placement, PoolPlacement)
            if (placement.pool, placement.rejected, placement.queued_for) != (str(each.key), found.rejected, ""):
                return f"{each.name} is to be in {each.key}: {placement}"
            pool = pools.get(each.key)
            if isinstance(pool, Pool) and (each.name in pool.members) == found.rejected:
                return f"{each.key} has {pool.members}, {each.name} {'is rejected' if found.rejected else 'is missing'}"
        members = sum(len(pool.members) for pool in pools.values() if isinstance(pool, Pool))
        admitted = sum(not p.rejected for p in placements.values() if isinstance(p, PoolPlacement))
        return "" if members == admitted else f"{members} members, {admitted} admitted"

    def _pool_of(self, key: Key) -> PoolKey:
        function = self.log.current(subjects.FUNCTION)[key]
        access = self.log.current(subjects.ACCESS).get(key)
        assert isinstance(function, Function)
        return pool_of(NS, key[1], function, access if isinstance(access, FunctionAccess) else None)

    def _users(self) -> None:
        if self.timeline.seconds > FAULTY_SECONDS:
            return
        name, random = self.random.choice(NAMES), self.random
        match random.random():
            case chance if chance < 0.1:
                self.log.publish(Message(subjects.FUNCTION.subject(NS, name), b'{"runtime": 3}'))
            case chance if chance < 0.25:
                self.log.publish(put(subjects.FUNCTION, (NS, name), None))
            case chance if chance < 0.45:
                grants = tuple(random.sample(["group/x", "group/y"], random.randint(0, 1)))
                self.log.publish(put(subjects.ACCESS, (NS, name), FunctionAccess(grants=grants)))
            case _:
                pooling = Pooling(worker=random.choice(["main", "main", None]))
                artifact = f"v{random.randint(1, 3)}"
                function = Function(runtime="python", handler="m.h", artifact=artifact, pooling=pooling)
                self.log.publish(put(subjects.FUNCTION, (NS, name), function))
        self.timeline.after(random.expovariate(1 / 1.5), self._users)

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
