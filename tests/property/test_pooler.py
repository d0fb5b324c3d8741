"""Laws of the pooler over random histories of functions, grants, policies, runtimes and workers."""

from datetime import timedelta
from random import Random
from typing import cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.pooler.access import PoolKey, pool_of
from services.pooler.assign import ByName, Declared
from services.pooler.decide import decide
from services.pooler.hosting import row
from services.pooler.state import fold
from services.pooler.world import State
from shared import subjects
from shared.model.function import Function, FunctionAccess
from shared.model.pool import Pool, PoolPlacement
from shared.service import Decision, Plan, Version
from shared.subjects import Key
from tests.unit.pooler_world import NS, World

NAMES = [f"f{number}" for number in range(7)]
WORKERS = ["one", "two", None]
SEEDS = st.integers(0, 10**6)


class History(World):
    """A world that people and hosts act upon at random, and that remembers what each function was allowed to be."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.allowed: dict[str, set[tuple[str, str]]] = {}

    def act(self) -> None:
        pick, name = self.random.random(), self.random.choice(NAMES)
        if pick < 0.45:
            secrets = ("s",) if self.random.random() < 0.2 else ()
            version = f"v{self.random.randint(1, 3)}"
            self.function(name, self.random.choice(WORKERS), NS, artifact=version, secrets=secrets)
        elif pick < 0.6:
            self.grant(name, *self.random.sample(["group/x", "group/y"], self.random.randint(0, 2)))
        elif pick < 0.7:
            self.delete(name)
        elif pick < 0.76:
            self.policy(self.random.choice(["by_name", "stable"]), limit=self.random.randint(1, 3))
        elif pick < 0.8:
            self.publish(subjects.RUNTIME, ("python",), None)
        elif pick < 0.86:
            self.runtime()
        elif pick < 0.96:
            self.host()
        else:
            self.now += timedelta(seconds=self.random.choice([1, 30, 61]))
        self.allow()

    def host(self) -> None:
        pools = sorted(pool for pool in self.state.tables[subjects.POOL] if self.pool_record(pool).desired)
        if pools:
            pool = PoolKey(*self.random.choice(pools))
            members = self.pool_record(pool).members
            self.worker(pool, {name: self.random.choice(["ready", "ready", "loading", "failed"]) for name in members})

    def pool_record(self, key: Key) -> Pool:
        record = self.state.get(subjects.POOL, key, Pool)
        assert record is not None
        return record

    def allow(self) -> None:
        """Note in which pool each function may be with which row, as its records are now."""
        for (_, key), function in self.current.items():
            if isinstance(function, Function):
                name = key[1]
                access = cast(FunctionAccess | None, self.current.get((subjects.ACCESS, key)))
                pool = str(pool_of(NS, name, function, access))
                self.allowed.setdefault(name, set()).add((pool, row(name, function)))

    def check(self) -> None:
        """What holds after every pass."""
        for key, version in self.state.tables[subjects.POOL].items():
            pool = version.record
            assert isinstance(pool, Pool)
            assert len(pool.members) <= pool.limit
            rows = orjson.loads(pool.run.env["STEER_MEMBERS"]) if pool.members else []
            assert tuple(each["name"] for each in rows) == pool.members == tuple(sorted(set(pool.members)))
            for each in rows:
                assert (str(PoolKey(*key)), orjson.dumps(each).decode()) in self.allowed[each["name"]]

    def check_rest(self) -> None:
        """What holds when nothing is left to decide."""
        for (kind, (*_, name)), record in self.current.items():
            if kind is not subjects.FUNCTION:
                continue
            placement = self.state.placement((NS, name))
            if record is None:
                assert placement is None
                continue
            assert placement is not None
            pools = self.state.tables[subjects.POOL]
            inside = {str(PoolKey(*pool)) for pool in pools if name in self.pool_record(pool).members}
            if placement.rejected:
                assert placement.reason and placement.pool not in inside
                assert self.decision("function", NS, name) is not None
            elif placement.queued_for:
                assert placement.reason and placement.pool in inside | {""}
            else:
                assert placement.pool in inside and not placement.reason


def everything(state: State, seed: int, log: list[Version]) -> State:
    """A state that has just been loaded, in any order: it looks at everything."""
    last = {(version.kind, version.key): version for version in log}
    fresh = State()
    versions = list(last.values())
    Random(seed).shuffle(versions)
    for version in versions:
        fold(fresh, version)
        fold(fresh, version)
    assert fresh.sequence == state.sequence
    return fresh


def decisions(plan: Plan) -> list[Decision]:
    """A plan is one commit: in which order it says things is no matter."""
    return sorted(plan.decisions, key=lambda decision: (decision.about, decision.key))


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_looking_at_what_changed_decides_the_same_as_looking_at_everything_in_any_order(seed: int) -> None:
    it = History(seed)
    for _ in range(25):
        it.act()
        fresh = everything(it.state, seed, it.log)
        assert decisions(decide(fresh, it.now)) == decisions(decide(it.state, it.now))
        it.step()
        it.check()


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_deciding_comes_to_rest_and_stays_there(seed: int) -> None:
    it = History(seed)
    it.runtime()
    for _ in range(12):
        for _ in range(it.random.randint(1, 4)):
            it.act()
        it.advance(4)
        it.check()
        it.check_rest()
        assert decide(everything(it.state, seed, it.log), it.now).decisions == ()


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_by_name_who_is_where_follows_from_who_declares_what_whatever_came_before(seed: int) -> None:
    it = History(seed)
    for _ in range(30):
        it.act()
        it.settle()
    it.runtime()
    it.policy("by_name", limit=2)
    it.cooperate()
    it.advance(200)
    assert not it.state.queued
    wanted = [Declared(name, candidate.pool) for (_, name), candidate in it.state.functions.items()]
    for each in wanted:
        assert each.key is not None
        found = ByName().assign(each, each.key, wanted, 2)
        placement = it.placement(each.name)
        assert (placement.pool, placement.rejected) == (str(found.key), found.rejected)
        assert placement.reason == found.reason
        members: tuple[str, ...] = it.pools().get(str(each.key), ())
        assert (each.name in members) == (not found.rejected)
    assert sum(map(len, it.pools().values())) == len(wanted) - len(it.rejected())


@pytest.mark.parametrize("seed", range(3))
def test_stable_evicts_nobody_who_still_wants_to_run_over_a_thousand_arrivals_and_departures(seed: int) -> None:
    it, source = World(), Random(seed)
    it.runtime()
    it.policy("stable", limit=4)
    wanting: set[str] = set()
    for step in range(1000):
        if wanting and source.random() < 0.5:
            name = source.choice(sorted(wanting))
            wanting.discard(name)
            it.delete(name)
        else:
            name = f"f{source.randint(0, 20):02d}"
            wanting.add(name)
            it.function(name, artifact=f"v{source.randint(1, 3)}")
        running = admitted(it) & wanting
        it.now += timedelta(seconds=4)
        it.settle()
        assert running <= admitted(it), f"step {step}: {running - admitted(it)} were evicted"
    it.cooperate()
    assert len(admitted(it)) == min(4, len(wanting))


def admitted(it: World) -> set[str]:
    return {
        key[1]
        for key, version in it.state.tables[subjects.PLACEMENT].items()
        if isinstance(version.record, PoolPlacement) and not version.record.rejected and not version.record.queued_for
    }
