"""Pools over time: how functions move from one to another, and whose turn it is to change."""

from datetime import timedelta

import orjson

from tests.unit.pooler_world import MAIN, NO_ACCESS, NS, World, granted, world


def test_who_is_regranted_joins_the_other_pool_first_and_leaves_when_it_is_ready_there() -> None:
    it = world("a", "b")
    there = granted("group/x")
    it.grant("b", "group/x")
    it.settle()
    assert it.pools() == {MAIN: ("a", "b"), str(there): ("b",)}
    assert it.placement("b").pool == str(there) and it.placement("b").moving_from == MAIN
    place = it.worker(there, {"b": "loading"})
    assert it.settle() == []
    it.report(place, {"b": "ready"})
    it.settle()
    assert it.pools() == {MAIN: ("a",), str(there): ("b",)}
    assert it.placement("b").moving_from == ""


def test_who_never_gets_ready_there_leaves_after_a_minute() -> None:
    it = world("a", "b")
    it.grant("b", "group/x")
    it.settle()
    it.worker(granted("group/x"), {"b": "failed"})
    it.advance(59)
    assert it.pools()[MAIN] == ("a", "b")
    it.advance(2)
    assert it.pools()[MAIN] == ("a",)


def test_a_pool_whose_members_all_move_ends_with_the_last_one() -> None:
    it = world("a", "b")
    there = granted("group/x")
    for name in "ab":
        it.grant(name, "group/x")
    it.settle()
    assert it.pools() == {MAIN: ("a", "b"), str(there): ("a", "b")}
    it.worker(there)
    it.settle()
    assert it.pools() == {str(there): ("a", "b")}


def test_who_stays_for_a_while_keeps_the_row_with_which_it_runs() -> None:
    it = world("a", "b")
    it.function("b", secrets=("s",), artifact="b/v2")
    it.function("a", artifact="a/v2")
    it.settle()
    rows = {row["name"]: row for row in orjson.loads(it.pool().run.env["STEER_MEMBERS"])}
    assert rows["a"]["artifact"] == "a/v2" and rows["b"]["artifact"] == "b/v1"
    assert it.pool().run.env_from == ()


def test_a_grant_that_is_taken_back_in_time_leaves_everything_as_it_was() -> None:
    it = world("a", "b")
    it.grant("b", "group/x")
    it.settle()
    it.grant("b")
    it.cooperate()
    assert it.pools() == {MAIN: ("a", "b")} and it.placement("b").moving_from == ""


def test_who_moves_to_a_full_pool_is_rejected() -> None:
    it = World()
    it.runtime()
    it.policy(limit=1)
    it.function("a", worker="one")
    it.function("b", worker="two")
    it.cooperate()
    it.function("b", worker="one")
    it.cooperate()
    assert it.pools() == {f"python/one/{NO_ACCESS}": ("a",)} and it.rejected() == ["b"]


def test_two_functions_may_change_places_in_full_pools() -> None:
    it = World()
    it.runtime()
    it.policy(limit=1)
    it.function("a", worker="one")
    it.function("b", worker="two")
    it.cooperate()
    it.function("a", worker="two")
    it.function("b", worker="one")
    it.cooperate()
    assert it.pools() == {f"python/one/{NO_ACCESS}": ("b",), f"python/two/{NO_ACCESS}": ("a",)}
    assert it.rejected() == []


def many(pools: int, limit: int) -> World:
    it = World()
    it.runtime()
    it.policy(limit=limit)
    for number in range(pools):
        it.functions(f"a{number:02d}", f"b{number:02d}", worker=f"w{number:02d}")
    it.cooperate()
    return it


def test_a_storm_moves_a_few_pools_at_a_time_and_names_the_rest() -> None:
    it = many(20, limit=3)
    for number in range(20):
        for letter in "ab":
            it.grant(f"{letter}{number:02d}", "group/x")
    rounds = 0
    seen_waiting = False
    while True:
        it.settle()
        changing = list(it.state.changing_until)
        assert len(changing) <= 3
        waiting = [name for name in ("a05", "a19") if it.placement(name).queued_for]
        for name in waiting:
            seen_waiting = True
            placement = it.placement(name)
            assert not placement.rejected and placement.pool == f"python/w{name[1:]}/{NO_ACCESS}"
            assert "at most 3 pools of shop change at a time" in placement.reason
            decision = it.decision("function", NS, name)
            assert decision is not None and "queued" in decision.outcome and len(decision.reasons["changing"]) == 3
        if not changing:
            break
        it.worker(changing[0])
        rounds += 1
        assert rounds < 100
    assert seen_waiting and rounds >= 20
    assert len(it.pools()) == 20 and all(not text.endswith(NO_ACCESS) for text in it.pools())
    assert it.placement("a19").reason == ""


def test_a_turn_ends_by_its_deadline_if_no_worker_comes_up() -> None:
    it = many(4, limit=1)
    for number in range(4):
        it.function(f"a{number:02d}", worker=f"w{number:02d}", artifact="v2")
    it.settle()

    def done() -> int:
        pools = [it.pool(text) for text in it.pools()]
        return sum("v2" in pool.run.env["STEER_MEMBERS"] for pool in pools)

    assert done() == 1
    it.advance(61)
    assert done() == 2
    it.advance(121)
    assert done() == 4


def test_a_pool_that_changes_already_changes_again_without_another_turn() -> None:
    it = many(3, limit=2)
    for number in range(3):
        it.function(f"a{number:02d}", worker=f"w{number:02d}", artifact="v2")
    it.settle()
    assert "v2" not in it.pool(f"python/w02/{NO_ACCESS}").run.env["STEER_MEMBERS"]
    it.function("b00", worker="w00", artifact="v2")
    it.advance(3)
    assert it.pool(f"python/w00/{NO_ACCESS}").run.env["STEER_MEMBERS"].count("v2") == 2
    assert "v2" not in it.pool(f"python/w02/{NO_ACCESS}").run.env["STEER_MEMBERS"]


def test_functions_that_come_one_after_the_other_share_a_change() -> None:
    it = World()
    it.runtime()
    changes = 0
    for number in range(10):
        it.function(f"f{number}")
        changes += len(it.settle())
        assert it.notices() == {}
        it.now += timedelta(milliseconds=100)
    assert changes == 1 and it.pool().members == ("f0",)
    it.advance(3)
    assert len(it.pool().members) == 10 and it.rejected() == []


def test_a_pool_whose_worker_has_loaded_changes_at_once() -> None:
    it = world("a")
    it.function("b")
    it.settle()
    assert it.pool().members == ("a", "b")


def test_new_functions_in_new_pools_wait_for_no_turn() -> None:
    it = World()
    it.runtime()
    it.policy(limit=1)
    it.functions(*"abcdef", worker=None)
    it.settle()
    assert len(it.pools()) == 6
