"""Pools: who is in them, who waits and why, and what is looked at."""

import orjson
import pytest

from services.pooler.access import PoolKey
from services.pooler.hosting import row, signature
from services.pooler.queries import QUERIES
from shared import subjects
from shared.codec import config_hash, encode
from shared.errors import SteerError
from shared.model.function import Function, Link
from shared.model.pool import Pool, PoolMember
from shared.model.run import Healthcheck, Resources
from shared.model.service import DecisionRecord
from tests.unit.pooler_world import HOST, MAIN, NO_ACCESS, NS, World, granted, main, world


def test_functions_of_one_key_share_a_pool_and_others_do_not() -> None:
    it = World()
    it.runtime()
    it.runtime("node")
    it.functions("a", "b")
    it.function("c", runtime="node")
    it.function("d", worker="other")
    it.function("e", secrets=("s",))
    it.function("f", namespace="bank")
    it.settle()
    assert it.pools()[MAIN] == ("a", "b")
    assert sorted(map(len, it.pools().values())) == [1, 1, 1, 2]
    assert list(it.pools("bank").values()) == [("f",)]


def test_a_function_without_a_worker_is_a_pool_of_one() -> None:
    it = world("a", worker=None)
    assert it.pools() == {f"python/_a/{NO_ACCESS}": ("a",)}
    placement = it.placement("a")
    assert (placement.pooled, placement.key, placement.pool) == (False, "", f"python/_a/{NO_ACCESS}")


def test_a_pool_is_what_a_scheduler_needs_to_run_it() -> None:
    it = World()
    it.runtime(resources=Resources(cpu_millis=200, memory_mb=100), platforms=("linux/amd64",))
    it.function("b", env={"B": "2", "A": "1"}, timeout_seconds=5, resources=Resources(memory_mb=50))
    it.function("a", resources=Resources(cpu_millis=30, memory_mb=20))
    it.settle()
    pool = it.pool()
    assert (pool.desired, pool.limit, pool.waiting_count, pool.platforms) == (1, 16, 0, ("linux/amd64",))
    assert pool.resources == Resources(cpu_millis=230, memory_mb=170)
    assert pool.run.image == "exec:host" and pool.run.env["STEER_NAMESPACE"] == NS
    assert orjson.loads(pool.run.env["STEER_MEMBERS"]) == [
        {"name": "a", "handler": "m.handle", "artifact": "a/v1"},
        {"name": "b", "handler": "m.handle", "artifact": "b/v1", "env": {"A": "1", "B": "2"}, "timeout_seconds": 5},
    ]


def test_a_signature_begins_with_the_hash_that_its_assignments_carry() -> None:
    it = world("a")
    other = HOST.replaced(env={"B": "2", "A": "1"}, env_from=("host",), healthcheck=Healthcheck(type="tcp"))
    for host in (HOST, other, other.replaced(stop_grace_seconds=2.5)):
        it.runtime(run=host)
        it.cooperate()
        pool = it.pool()
        assert pool.run == host.replaced(env=pool.run.env, env_from=pool.run.env_from)
        assert pool.signature == signature(pool.run, pool.resources)
        assert pool.signature[:16] == config_hash(pool.run, pool.resources)


def test_a_member_is_told_to_its_host_as_json_that_reads_back_to_the_same_text() -> None:
    printable = "".join(map(chr, range(ord("!"), ord("~") + 1)))
    function = Function(runtime="python", handler="m.handle", artifact=printable)
    for each in (function, function.replaced(env={"B": '"\n\u2028', "A": ""}, timeout_seconds=0.1)):
        told = row("a", each)
        assert orjson.dumps(orjson.loads(told)).decode() == told
        member = PoolMember.model_validate_json(told)
        assert (member.name, member.handler, member.artifact) == ("a", "m.handle", printable)
        assert (member.env, member.timeout_seconds) == (dict(sorted(each.env.items())), each.timeout_seconds)


def test_settings_and_secrets_are_files_of_the_node_that_members_agree_in() -> None:
    it = world("a", "b", secrets=("s2", "s1"), config=("c",))
    ((_, members),) = it.pools().items()
    assert members == ("a", "b")
    (text,) = it.pools()
    assert it.pool(text).run.env_from == ("shop/config/c", "shop/secrets/s2", "shop/secrets/s1")


def test_without_a_runtime_functions_are_rejected_for_that_reason_until_there_is_one() -> None:
    it = World()
    it.functions("a", "b")
    it.settle()
    assert it.rejected() == ["a", "b"] and it.pools() == {}
    assert it.placement("a").reason == "runtime python: there is no Runtime of that name"
    assert list(it.notices()) == [f"runtime_missing/shop/{MAIN}"]
    it.runtime()
    it.settle()
    assert it.rejected() == [] and it.pools() == {MAIN: ("a", "b")} and it.notices() == {}
    decision = it.decision("function", NS, "a")
    assert decision is not None and decision.outcome == f"in {MAIN}"


def test_a_runtime_that_is_deleted_ends_its_pools() -> None:
    it = world("a")
    it.publish(subjects.RUNTIME, ("python",), None)
    it.settle()
    assert (it.pool().desired, it.pool().members, it.pool().waiting_count) == (0, (), 1)
    assert it.rejected() == ["a"]
    it.runtime()
    it.settle()
    assert (it.pool().desired, it.pool().members) == (1, ("a",)) and it.rejected() == []


def test_a_full_pool_says_so_and_who_holds_it() -> None:
    it = World()
    it.runtime()
    it.policy(limit=2)
    it.functions("c", "b", "a")
    it.settle()
    assert it.pools() == {MAIN: ("a", "b")} and it.pool().waiting_count == 1
    assert it.placement("c").rejected
    assert it.placement("c").reason == f"pool {MAIN} is full (2); use another pooling.worker"
    decision = it.decision("function", NS, "c")
    assert decision is not None and list(decision.reasons["held_by"]) == ["a", "b"] and decision.reasons["cure"]
    assert list(it.notices()) == [f"pool_full/shop/{MAIN}"]


def test_who_was_rejected_is_admitted_when_a_place_is_free_without_a_write_of_its_own() -> None:
    it = World()
    it.runtime()
    it.policy(limit=2)
    it.functions("a", "b", "c")
    it.cooperate()
    it.delete("a")
    it.settle()
    assert it.pools() == {MAIN: ("b", "c")} and it.rejected() == [] and it.notices() == {}
    assert it.state.placement((NS, "a")) is None


def test_by_name_an_earlier_function_takes_the_place_of_a_later_one() -> None:
    it = World()
    it.runtime()
    it.policy(limit=2)
    it.functions("b", "c")
    it.cooperate()
    it.function("a")
    it.settle()
    assert it.pools() == {MAIN: ("a", "b")} and it.rejected() == ["c"]


def test_stable_lets_an_earlier_function_wait() -> None:
    it = World()
    it.runtime()
    it.policy("stable", limit=2)
    it.functions("b", "c")
    it.cooperate()
    it.function("a")
    it.settle()
    assert it.pools() == {MAIN: ("b", "c")} and it.rejected() == ["a"]
    it.delete("b")
    it.settle()
    assert it.pools() == {MAIN: ("a", "c")} and it.rejected() == []


def test_a_new_limit_rules_at_once() -> None:
    it = World()
    it.runtime()
    it.policy(limit=3)
    it.functions("a", "b", "c", "d")
    it.cooperate()
    assert it.rejected() == ["d"]
    it.policy(limit=1)
    it.cooperate()
    assert it.pools() == {MAIN: ("a",)} and it.rejected() == ["b", "c", "d"]
    assert "full (1)" in it.placement("d").reason
    it.policy(limit=4)
    it.cooperate()
    assert it.pools() == {MAIN: ("a", "b", "c", "d")} and it.rejected() == []


def test_new_code_of_one_member_is_another_signature_of_its_pool() -> None:
    it = world("a", "b")
    before = it.pool()
    it.function("a", artifact="a/v2")
    it.settle()
    assert it.pool().signature != before.signature and it.pool().members == ("a", "b")


def test_what_is_applied_anew_as_it_was_changes_nothing() -> None:
    it = world("a", "b")
    it.function("a")
    it.policy(limit=16)
    it.runtime()
    assert it.settle() == []


def test_a_new_host_is_another_signature_of_every_pool_of_its_runtime() -> None:
    it = world("a")
    before = it.pool().signature
    it.runtime(run=HOST.with_image("exec:host2"))
    it.settle()
    assert it.pool().signature != before and it.pool().run.image == "exec:host2"


def test_the_last_member_takes_its_pool_along() -> None:
    it = world("a")
    it.delete("a")
    it.settle()
    assert it.pools() == {} and it.decision("pool", *main()) is None


def test_what_no_record_speaks_of_is_held() -> None:
    before = world("a", "b")
    it = World()
    for version in before.log:
        if version.kind in (subjects.POOL, subjects.PLACEMENT, subjects.RUNTIME):
            it.publish(version.kind, version.key, version.record)
    assert it.settle() == [] and it.pools() == {MAIN: ("a", "b")}
    it.functions("a", "b")
    assert it.settle() == []


def test_one_change_is_looked_at_with_its_pool_and_nothing_else() -> None:
    it = World()
    it.runtime()
    for number in range(100):
        it.functions(*(f"f{number:02d}-{index}" for index in range(8)), worker=f"w{number:02d}")
    it.cooperate()
    it.function("f50-3", worker="w50", artifact="v2")
    plan = it.step()
    pool = PoolKey(NS, "python", "w50", NO_ACCESS)
    assert plan.looks.keys() == {pool}
    assert [decision.key for decision in plan.decisions] == [pool]


def test_one_of_many_that_wait_costs_no_more_than_its_pool() -> None:
    it = World()
    it.runtime()
    it.policy(limit=2)
    it.functions(*(f"f{number:03d}" for number in range(500)))
    it.cooperate()
    assert len(it.rejected()) == 498
    it.delete("f000")
    plan = it.step()
    assert len(plan.looks) <= 5 and it.pools() == {MAIN: ("f001", "f002")}


def test_in_a_large_pool_a_change_reaches_everybody_whom_it_concerns() -> None:
    it = World()
    it.runtime()
    it.policy(limit=2)
    names = [f"f{number:03d}" for number in range(150)]
    it.functions(*names[:100])
    it.cooperate()
    it.functions(*names[100:])
    it.cooperate()
    assert it.rejected() == names[2:]
    it.policy(limit=3)
    it.grant("f100", "group/x")
    it.delete("f149")
    it.cooperate()
    assert it.rejected() == [name for name in names[3:149] if name != "f100"]
    assert all("full (3)" in it.placement(name).reason for name in it.rejected())
    assert it.state.placement((NS, "f149")) is None
    assert it.pools() == {MAIN: tuple(names[:3]), str(granted("group/x")): ("f100",)}


def test_a_pool_that_asks_for_more_than_there_can_be_is_a_record_all_the_same() -> None:
    it = World()
    it.runtime()
    it.functions("a", "b", resources=Resources(cpu_millis=1_000_000, memory_mb=100_000_000))
    it.settle()
    pool = it.pool()
    assert pool.resources == Resources(cpu_millis=1_000_000, memory_mb=100_000_000)
    assert Pool.model_validate_json(encode(pool)) == pool


def test_a_pool_can_be_asked_how_full_it_is_and_a_function_why() -> None:
    it = World()
    it.runtime()
    it.policy(limit=2)
    it.functions("a", "b", "c")
    it.cooperate()
    answer = QUERIES["state"](it.state, {"namespace": NS}, it.now)
    assert answer["pools"] == [
        {"pool": MAIN, "members": {"a": "ready", "b": "ready"}, "limit": 2, "waiting": ["c"], "changing": False}
    ]
    told = QUERIES["explain"](it.state, {"function": "shop/c"}, it.now)
    assert told["placement"]["rejected"] and list(told["pool"]["members"]) == ["a", "b"]
    assert QUERIES["explain"](it.state, {"pool": "/".join(main())}, it.now)["fill"]["waiting"] == ["c"]
    with pytest.raises(SteerError, match="does not exist"):
        QUERIES["explain"](it.state, {"function": "shop/z"}, it.now)


def test_a_dry_run_says_where_a_function_would_be() -> None:
    it = World()
    it.runtime()
    it.policy(limit=1)
    it.function("b")
    it.settle()
    body = {"runtime": "python", "handler": "m.h", "artifact": "a", "pooling": {"worker": "main"}}
    ask = {"namespace": NS, "name": "c", "function": body}
    assert QUERIES["place"](it.state, ask, it.now)["rejected"]
    assert QUERIES["place"](it.state, ask | {"name": "a"}, it.now)["pool"] == MAIN
    elsewhere = QUERIES["place"](it.state, ask | {"access": {"grants": ["group/x"]}}, it.now)
    assert elsewhere == {"pool": str(granted("group/x")), "pooled": True, "rejected": False, "reason": ""}
    with pytest.raises(SteerError, match="handler"):
        QUERIES["place"](it.state, ask | {"function": {}}, it.now)


def test_functions_that_may_call_each_other_in_a_circle_are_placed_like_all_others() -> None:
    it = world("plain")
    for name, target in (("a", "b"), ("b", "c"), ("c", "a"), ("self", "self")):
        it.function(name, links=(Link(alias="next", target=target),))
    it.cooperate()
    assert not it.rejected() and not any(it.placement(name).rejected for name in ("a", "b", "c", "self", "plain"))
    assert sorted(member for members in it.pools().values() for member in members) == ["a", "b", "c", "plain", "self"]


def test_what_another_service_decided_is_no_matter() -> None:
    it = world("a")
    before = it.state.sequence
    record = DecisionRecord(read_sequence=1, now=it.now, outcome="placed")
    it.publish(subjects.DECISION, ("scheduler", "pool", *main()), record)
    assert it.state.sequence == before and it.settle() == []
    assert ("scheduler", "pool", *main()) not in it.state.tables[subjects.DECISION]
