"""Who is in a pool: the scenarios of the policy, and what holds of both drivers."""

import random

import pytest

from services.pooler.access import PoolKey
from services.pooler.assign import Assigner, ByName, Declared, PoolAssignment, Stable, assigner

KEY = PoolKey("shop", "python", "agents", "0123456789abcdef")
OTHER_ACCESS = KEY._replace(access="fedcba9876543210")


def declared(*names: str, key: PoolKey = KEY) -> list[Declared | None]:
    return [Declared(name, key) for name in names]


def it(name: str, key: PoolKey | None = KEY) -> Declared:
    return Declared(name, key)


DRIVERS = pytest.mark.parametrize("driver", [ByName(), Stable(), Stable(("x", "y"))], ids=["by name", "new", "stable"])


@DRIVERS
def test_without_a_worker_a_function_runs_alone(driver: Assigner) -> None:
    assert driver.assign(it("a", None), KEY, declared("a", "b"), 0) == PoolAssignment()


@DRIVERS
def test_distinct_workers_are_distinct_pools(driver: Assigner) -> None:
    other = KEY._replace(worker="batch")
    same_key = [*declared("a"), *declared("b", key=other)]
    assert driver.assign(it("a"), KEY, same_key, 1).rejected is False
    assert driver.assign(it("b", other), other, same_key, 1).key == other


@DRIVERS
@pytest.mark.parametrize(
    "other",
    [KEY._replace(runtime="node"), KEY._replace(namespace="bank"), OTHER_ACCESS],
    ids=["runtime", "ns", "access"],
)
def test_another_key_takes_no_place(driver: Assigner, other: PoolKey) -> None:
    assert driver.assign(it("b"), KEY, [*declared("b"), *declared("a", key=other)], 1) == PoolAssignment(True, KEY)


def test_beyond_the_limit_a_function_is_rejected_with_the_reason() -> None:
    same_key = declared("c", "a", "b")
    found = {name: ByName().assign(it(name), KEY, same_key, 2) for name in "abc"}
    assert [name for name in "abc" if not found[name].rejected] == ["a", "b"]
    assert found["c"] == PoolAssignment(
        pooled=True,
        key=KEY,
        rejected=True,
        reason="pool python/agents/0123456789abcdef is full (2); use another pooling.worker",
    )


def test_the_order_in_which_functions_are_listed_does_not_matter() -> None:
    for same_key in (declared("a", "b", "c"), declared("c", "b", "a")):
        assert [ByName().assign(it(name), KEY, same_key, 2).rejected for name in "abc"] == [False, False, True]


@DRIVERS
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_an_error(driver: Assigner, limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit.*{limit}"):
        driver.assign(it("a"), KEY, declared("a"), limit)


@DRIVERS
def test_no_function_is_an_error(driver: Assigner) -> None:
    with pytest.raises(ValueError, match="function"):
        driver.assign(None, KEY, declared("a"), 1)


@DRIVERS
def test_what_is_none_among_the_others_is_left_out(driver: Assigner) -> None:
    assert driver.assign(it("b"), KEY, [None, *declared("b"), None], 1).rejected is False


def test_a_function_that_is_missing_from_the_list_counts_as_a_member() -> None:
    assert ByName().assign(it("c"), KEY, declared("a", "b"), 2).rejected
    assert not ByName().assign(it("a"), KEY, declared("b", "c"), 2).rejected


def test_by_name_an_earlier_name_takes_the_place_of_one_that_runs() -> None:
    assert ByName().admit(["a", "b", "c"], 2) == ["a", "b"]


def test_stable_keeps_whom_it_has_admitted() -> None:
    driver = Stable(("b", "c"))
    assert driver.admit(["a", "b", "c"], 2) == ["b", "c"]
    found = driver.assign(it("a"), KEY, declared("a", "b", "c"), 2)
    assert found.rejected and "full (2)" in found.reason
    assert driver.admit(["a", "c"], 2) == ["a", "c"]


def test_a_namespace_chooses_its_driver() -> None:
    assert assigner("by_name", ("x",)) == ByName()
    assert assigner("stable", ("x",)) == Stable(("x",))


@DRIVERS
def test_one_function_and_the_pool_as_a_whole_are_told_the_same(driver: Assigner) -> None:
    source = random.Random(7)
    for _ in range(200):
        names = sorted(source.sample("abcdefgxyz", source.randint(1, 10)))
        limit = source.randint(1, 5)
        shuffled = declared(*source.sample(names, len(names)))
        admitted = driver.admit(names, limit)
        assert len(admitted) == min(limit, len(names)) == len(set(admitted))
        assert admitted == sorted(admitted)
        for name in names:
            found = driver.assign(it(name), KEY, shuffled, limit)
            assert found.pooled and found.rejected == (name not in admitted)
            assert bool(found.reason) == found.rejected


def test_a_thousand_arrivals_and_departures_evict_nobody_who_wants_to_run() -> None:
    source = random.Random(11)
    wanting: set[str] = set()
    running: list[str] = []
    for _ in range(1000):
        if wanting and source.random() < 0.5:
            wanting.discard(source.choice(sorted(wanting)))
        else:
            wanting.add(f"f{source.randint(0, 40):02d}")
        before = [name for name in running if name in wanting]
        running = Stable(running).admit(sorted(wanting), 8)
        assert set(before) <= set(running)
        assert len(running) == min(8, len(wanting))
