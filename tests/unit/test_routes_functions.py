"""Routes of functions: the workers in which each is ready, while pools change and functions move."""

from random import Random

import pytest

from services.routes.decide import decide
from services.routes.queries import QUERIES
from services.routes.state import State, fold
from shared import subjects
from shared.errors import InvalidRecord
from shared.model.assignment import Assignment, Desired, Instance, InstanceState, WorkloadRef
from shared.model.pool import Pool, PoolPlacement
from shared.model.route import FunctionRoute, Routed
from shared.model.run import PortSpec, Resources, RunSpec
from shared.service import Version
from shared.subjects import Key
from tests.routing import START, World

ONE: Key = ("shop", "python", "main", "aaaa")
TWO: Key = ("shop", "python", "main", "bbbb")
RUN = RunSpec(
    image="exec:host",
    ports=(PortSpec(name="admin", container_port=1, protocol="tcp"), PortSpec(name="http", container_port=2)),
)


class Pools(World):
    def pool(self, key: Key, *members: str) -> Version:
        record = Pool(
            members=members, limit=16, signature="a" * 64, run=RUN, resources=Resources(), desired=1,
            changed_at=START, settles_by=START,
        )  # fmt: skip
        return self.put(subjects.POOL, key, record)

    def place(self, name: str, pool: Key, rejected: bool = False) -> Version:
        record = PoolPlacement(pooled=True, pool="/".join(pool[1:]), rejected=rejected)
        return self.put(subjects.PLACEMENT, ("shop", name), record)

    def worker(self, id: str, pool: Key = ONE, desired: Desired = "run", node: str = "n1") -> Version:
        record = Assignment(
            workload=WorkloadRef(kind="pool", key="/".join(pool)), desired=desired, run=RUN, config_hash="0" * 16,
            resources=Resources(), created_at=START,
        )  # fmt: skip
        return self.put(subjects.ASSIGNMENT, (node, id), record)

    def says(self, id: str, state: InstanceState = "healthy", node: str = "n1", **members: str) -> Version:
        ports = {"http": 30000 + int(id[-1]), "admin": 1}
        record = Instance(assignment_sequence=1, state=state, ports=ports, members=members, since=self.now)
        return self.put(subjects.INSTANCE, (node, id), record)

    def route(self, name: str) -> FunctionRoute | None:
        record = self.record(subjects.ROUTE_FUNCTION, "shop", name)
        assert record is None or isinstance(record, FunctionRoute)
        return record

    def workers(self, name: str) -> list[str]:
        route = self.route(name)
        assert route is not None, f"{name} is not routed"
        return [endpoint.assignment for endpoint in route.endpoints]

    def routed_pool(self, pool: Key = ONE) -> Routed | None:
        record = self.record(subjects.ROUTED_POOL, *pool)
        assert record is None or isinstance(record, Routed)
        return record


@pytest.fixture
def world() -> Pools:
    """A pool of two functions, one worker, in which `a` is ready and `b` has failed."""
    world = Pools()
    world.node("n1")
    world.pool(ONE, "a", "b")
    world.place("a", ONE)
    world.place("b", ONE)
    world.worker("p-1")
    world.says("p-1", a="ready", b="failed")
    world.publish()
    return world


def test_a_function_leads_to_the_worker_in_which_it_is_ready(world: Pools) -> None:
    route = world.route("a")
    assert route is not None and route.pool == "python/main/aaaa"
    assert [endpoint.address for endpoint in route.endpoints] == ["10.0.0.1:30001"]


def test_a_function_that_has_failed_has_a_route_that_leads_nowhere(world: Pools) -> None:
    assert world.workers("b") == []
    assert world.manifest.functions == 2


def test_a_member_that_restarts_is_taken_out_and_comes_back_and_nobody_else_is_touched(world: Pools) -> None:
    world.says("p-1", a="restarting", b="failed")
    (plan,) = world.publish()
    assert [change.kind for change in plan.decisions[0].changes] == [subjects.ROUTE_FUNCTION, subjects.ROUTE_MANIFEST]
    assert world.workers("a") == []
    world.says("p-1", a="ready", b="failed")
    world.publish()
    assert world.workers("a") == ["p-1"]


def test_a_member_that_is_ready_is_served_while_others_still_load(world: Pools) -> None:
    world.says("p-1", "running", a="ready", b="loading")
    world.publish()
    assert world.workers("a") == ["p-1"]


@pytest.mark.parametrize("state", ["starting", "unhealthy", "failed", "stopped"])
def test_a_host_that_is_not_up_serves_nobody(world: Pools, state: InstanceState) -> None:
    world.says("p-1", state, a="ready", b="ready")
    world.publish()
    assert world.workers("a") == []


def test_a_node_that_is_down_serves_nobody(world: Pools) -> None:
    world.node_status("n1", "down")
    world.publish()
    assert world.workers("a") == []


def test_during_a_rebuild_both_workers_serve_until_the_old_one_drains(world: Pools) -> None:
    world.worker("p-2")
    world.says("p-2", a="loading", b="loading")
    world.publish()
    assert world.workers("a") == ["p-1"]
    world.says("p-2", a="ready", b="ready")
    world.publish()
    assert world.workers("a") == ["p-1", "p-2"] and world.workers("b") == ["p-2"]
    drained = world.worker("p-1", desired="drain")
    world.publish()
    assert world.workers("a") == ["p-2"]
    routed = world.routed_pool()
    assert routed is not None and routed.drains == {"p-1": drained.sequence}
    assert routed.version == world.manifest.version


def test_a_function_that_moves_is_served_where_it_was_until_it_is_ready_where_it_goes(world: Pools) -> None:
    world.pool(TWO, "a")
    world.place("a", TWO)
    world.worker("p-2", TWO)
    world.publish()
    assert world.workers("a") == ["p-1"]
    world.says("p-2", a="ready")
    world.publish()
    route = world.route("a")
    assert route is not None and route.pool == "python/main/bbbb" and world.workers("a") == ["p-2"]
    world.pool(ONE, "b")
    world.publish()
    assert world.workers("a") == ["p-2"]


def test_a_function_that_leaves_its_last_pool_has_no_route(world: Pools) -> None:
    world.pool(ONE, "b")
    world.publish()
    assert world.route("a") is None
    world.delete(subjects.POOL, *ONE)
    world.publish()
    assert world.route("b") is None and world.manifest.functions == 0


def test_a_drain_is_taken_in_also_when_no_route_changes(world: Pools) -> None:
    world.worker("p-2")
    world.publish()
    version = world.manifest.version
    drained = world.worker("p-2", desired="drain")
    world.publish()
    routed = world.routed_pool()
    assert routed is not None and routed.drains == {"p-2": drained.sequence} and routed.version == version + 1


def test_what_was_said_of_drains_goes_with_the_workers(world: Pools) -> None:
    world.worker("p-1", desired="drain")
    world.publish()
    world.delete(subjects.ASSIGNMENT, "n1", "p-1")
    world.publish()
    assert world.routed_pool() is None


def test_a_pool_that_no_record_speaks_of_is_held(world: Pools) -> None:
    state = State("example.net")
    for (kind, _), version in world.last().items():
        if kind not in (subjects.POOL, subjects.PLACEMENT):
            fold(state, version)
    assert decide(state, world.now).decisions == ()


def test_one_may_ask_why_a_worker_does_not_serve_a_function(world: Pools) -> None:
    answer = QUERIES["explain"](world.state, {"function": "shop/b"}, world.now)
    (pool,) = answer["pools"]
    assert pool["workers"] == [
        {"node": "n1", "assignment": "p-1", "obstacle": "its host does not say that b is ready"},
    ]
    with pytest.raises(InvalidRecord, match="namespace/function"):
        QUERIES["explain"](world.state, {"function": "b"}, world.now)


def test_the_order_of_records_does_not_matter(world: Pools) -> None:
    world.pool(TWO, "a")
    world.place("a", TWO)
    world.worker("p-2", TWO)
    world.says("p-2", a="ready")
    versions = list(world.last().values())
    world.wait(1000)
    for seed in range(30):
        Random(seed).shuffle(versions)
        state = State("example.net")
        for version in versions:
            fold(state, version)
        decision = decide(state, world.now).decisions[0]
        assert [change.subject for change in decision.changes] == [
            "steer.route.function.shop.a",
            "steer.route.manifest",
        ]
