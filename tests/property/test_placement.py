"""Placement equals the oracle on random worlds, whatever has happened to them before."""

import json
from contextlib import ExitStack
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.node_index import DEFAULT_SIZES, Sizes
from services.scheduler.placement import Cluster, Placed, Request, place
from tests import oracle

FILTERS = ["excluded", "cordoned", "down", "draining", "suspect", "platform", "labels", "pin", "distinct_nodes",
           "memory", "cpu"]  # fmt: skip
WORKLOADS = ["environment/shop/web/production", "environment/shop/api/staging", "pool/acme/node/main/shared"]
PLATFORMS = ["linux/amd64", "linux/arm64", "Linux/x86_64", "linux/aarch64", "plan9/mips", "", " "]
LABELS = {"region": ["eu", "us", "ap", ""], "disk": ["ssd", "hdd", ""], "zone": ["a", "b"]}
STEPS = ["set", "reserve", "reserve", "reserve", "release", "remove", "trial", "undo", "place"]
SIZES = [DEFAULT_SIZES, Sizes(block=1, few=0, asked=1), Sizes(block=2, few=0), Sizes(block=3, few=3, asked=2)]

worlds = settings(
    max_examples=2000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


class World:
    """The production cluster, and the plain lists that the oracle reads, told the same things by one generator."""

    def __init__(self, seed: int, nodes: int, steps: int, sizes: Sizes = DEFAULT_SIZES) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(sizes)
        self.names = [f"n{number}" for number in range(1, nodes + 2)]
        self.nodes: dict[str, oracle.OracleNode] = {}
        self.reservations: list[oracle.OracleReservation] = []
        self._trials: list[tuple[ExitStack, list[oracle.OracleReservation]]] = []
        self._uniform = self.random.random() < 0.3
        for name in self.names[:nodes]:
            self._set(name)
        for _ in range(steps):
            self._step(self.random.choice(STEPS))

    def _set(self, name: str) -> None:
        choose = self.random.choice
        labels = {key: choose(values) for key, values in LABELS.items() if choose([True, True, False])}
        platform = choose(PLATFORMS[:2]) if choose([True, True, False]) else choose(PLATFORMS)
        capacity = choose([0, 100, 900, 1000, 2000, 4000, 64000]), choose([0, 100, 512, 1000, 1024, 4096, 262144])
        reason = choose([""] * 8 + ["down", "cordoned", "draining", "suspect"])
        if self._uniform:
            labels, platform, capacity = {"region": choose(LABELS["region"])}, "linux/amd64", (2000, 4096)
        self.nodes[name] = oracle.OracleNode(name, labels, platform, *capacity, reason)
        self.cluster.set_node(name, labels, platform, *capacity, reason)

    def _step(self, step: str) -> None:
        choose = self.random.choice
        match step:
            case "set":
                self._set(choose(self.names))
            case "remove":
                name = choose(self.names)
                self.cluster.remove_node(name)
                self.nodes.pop(name, None)
            case "reserve":
                amounts = choose([1, 100, 500, 900]), choose([1, 100, 256, 500, 2000])
                reservation = oracle.OracleReservation(choose(self.names), choose(WORKLOADS), *amounts)
                self.cluster.reserve(reservation.node, reservation.workload, *amounts)
                self.reservations.append(reservation)
            case "release" if self.reservations:
                gone = self.reservations.pop(self.random.randrange(len(self.reservations)))
                self.cluster.release(gone.node, gone.workload, gone.cpu_millis, gone.memory_mb)
            case "trial":
                stack = ExitStack()
                stack.enter_context(self.cluster.trial())
                self._trials.append((stack, list(self.reservations)))
            case "undo" if self._trials:
                stack, self.reservations = self._trials.pop()
                stack.close()
            case "place":
                self.check(self.request(), 2)

    def request(self) -> Request:
        choose = self.random.choice
        keys = [*LABELS, "none"]
        wanted = {key: choose([*LABELS.get(key, []), ""]) for key in keys if choose([True] + [False] * 5)}
        platforms = tuple(choose(PLATFORMS) for _ in range(choose([0, 0, 1, 2])))
        pin = choose(self.names) if choose([True] + [False] * 7) else None
        amounts = choose([1, 100, 500, 1000]), choose([1, 100, 256, 1000])
        distinct = choose([True, False, False])
        return Request(choose(WORKLOADS), *amounts, tuple(sorted(wanted.items())), platforms, distinct, pin)

    def check(self, request: Request, count: int, exclude: frozenset[str] = frozenset()) -> Placed:
        placed = place(self.cluster, request, count, exclude)
        wanted = oracle.OracleRequest(
            request.workload, request.cpu_millis, request.memory_mb, dict(request.constraints), request.platforms,
            request.distinct_nodes, request.pin,
        )  # fmt: skip
        nodes = list(self.nodes.values())
        answer = oracle.answer(nodes, self.reservations, wanted, count, exclude)
        assert list(placed.nodes) == answer.nodes
        assert placed.shortfall == answer.shortfall
        self._check_reasons(placed, answer)
        feasible = oracle.answer(nodes, self.reservations, wanted, 0).feasible
        assert sum(self.cluster.fits(name, request) for name in self.names) == feasible
        for workload in WORKLOADS:
            names = [item.node for item in self.reservations if item.workload == workload]
            assert self.cluster.replicas(workload) == {name: names.count(name) for name in names}
        return placed

    def _check_reasons(self, placed: Placed, answer: oracle.OracleAnswer) -> None:
        reasons = placed.reasons
        json.dumps(reasons)
        rejected = reasons["rejected"]
        assert sum(rejected.values()) + reasons["feasible"] == reasons["considered"] <= reasons["nodes"]
        assert reasons["nodes"] == len(self.nodes)
        assert list(rejected) == [reason for reason in FILTERS if reason in rejected]
        assert all(count > 0 for count in rejected.values())
        if placed.shortfall:
            assert rejected == answer.rejected
            assert reasons["considered"] == len(self.nodes)
            assert set(reasons["examples"]) == set(rejected) - {"pin"}
            for reason, examples in reasons["examples"].items():
                assert len(examples) == min(3, rejected[reason])
        else:
            capacity = {"distinct_nodes", "memory", "cpu"}
            assert rejected == {key: value for key, value in answer.rejected.items() if key not in capacity}


@worlds
@given(
    seed=st.integers(0, 2**32),
    nodes=st.integers(0, 24),
    steps=st.integers(0, 80),
    count=st.one_of(st.integers(-1, 12), st.just(60)),
    excluded=st.integers(0, 3),
    sizes=st.sampled_from(SIZES),
)
def test_the_same_nodes_in_the_same_order_as_the_oracle(**drawn: Any) -> None:
    world = World(drawn["seed"], drawn["nodes"], drawn["steps"], drawn["sizes"])
    exclude = frozenset(world.random.choices(world.names, k=drawn["excluded"]))
    world.check(world.request(), drawn["count"], exclude)


@settings(worlds, max_examples=200)
@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 24), steps=st.integers(0, 80))
def test_answers_and_reasons_depend_on_what_is_there_and_not_on_how_it_came_about(
    seed: int, nodes: int, steps: int
) -> None:
    world = World(seed, nodes, steps)
    other = Cluster(Sizes(block=2, few=0))
    for item in sorted(world.reservations, key=lambda item: (item.workload, item.node, item.memory_mb)):
        other.reserve(item.node, item.workload, item.cpu_millis, item.memory_mb)
    for node in sorted(world.nodes.values(), key=lambda node: node.name, reverse=True):
        other.set_node(node.name, node.labels, node.platform, node.cpu_millis, node.memory_mb, node.unavailable)
    for _ in range(5):
        request = world.request()
        for count in (1, 4, 60):
            before, after = place(world.cluster, request, count), place(other, request, count)
            assert json.dumps(before.reasons) == json.dumps(after.reasons)
            assert before == after


@settings(worlds, max_examples=200)
@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 24), steps=st.integers(0, 80))
def test_a_trial_leaves_nothing_behind(seed: int, nodes: int, steps: int) -> None:
    world = World(seed, nodes, steps)
    request = world.request()
    first = place(world.cluster, request, 4)
    with world.cluster.trial():
        for other in [world.request() for _ in range(4)]:
            for node in place(world.cluster, other, 4).nodes:
                world.cluster.reserve(node, other.workload, other.cpu_millis, other.memory_mb)
    assert place(world.cluster, request, 4) == first
