"""Placement alone: one replica in a full cluster, many in an empty one. No log, no server."""

from collections import deque
from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter

from bench.harness import Figure, Options, Row, growth, median_of, percentile, quiet, seconds
from bench.worlds import World, asked, node, sample, world
from services.scheduler.placement import Cluster, Request, place
from tests import oracle

NOMAD_PER_SECOND = 3750  # Nomad C1M, 5,000 hosts
KUBE_PER_SECOND = 810  # kube-scheduler's CI floor at 5,000 nodes
SAMPLES = 2000
ORACLE_SAMPLES = 15
HELD = 100


def run(options: Options) -> Iterable[Row]:
    yield from one_replica(options)
    yield from decisions(options)


def one_replica(options: Options) -> Iterable[Row]:
    """One more replica for a workload that has five, among constraints of several kinds; then it is reserved, and
    another one released, so that the index never rests."""
    nodes, replicas = options.size(5000, 500), options.size(100_000, 10_000)
    size = f"{nodes:,} nodes, {replicas:,} assignments, 50 classes"
    small = world(nodes // 10, replicas // 10)
    full = world(nodes, replicas)
    p50, p99 = _latencies(full, options)
    small_p50, _ = _latencies(small, options)
    baseline = _oracle(full)
    ratio = baseline / p50
    target, aim = "p99 ≤ 150 µs and p50 ≥ 500×", "≥ 2,000×"
    yield Figure("place one replica, p50", p50 * 1e6, "µs", size, baseline * 1e6, ratio, aim=aim, aim_met=ratio >= 2000)
    met = p99 <= 150e-6 and ratio >= 500
    yield Figure(
        "place one replica, p99", p99 * 1e6, "µs", size, baseline * 1e6, ratio, target, aim, met, ratio >= 2000
    )
    yield growth("place one replica", p50, small_p50, size)


def _latencies(full: World, options: Options) -> tuple[float, float]:
    """p50 and p99 in seconds: medians over the runs."""
    results: list[tuple[float, float]] = []
    for run_number in range(options.runs + 1):
        samples = _one_run(full, sample(full.requests, SAMPLES, run_number))
        results.append((median(samples), percentile(samples, 0.99)))
    return median(p50 for p50, _ in results[1:]), median(p99 for _, p99 in results[1:])


def _one_run(full: World, requests: list[Request]) -> list[float]:
    cluster = full.cluster
    samples: list[float] = []
    held: deque[tuple[str, Request]] = deque()
    with quiet(), cluster.trial():
        for request in requests:
            before = perf_counter()
            placed = place(cluster, request, 1)
            samples.append(perf_counter() - before)
            cluster.reserve(placed.nodes[0], request.workload, request.cpu_millis, request.memory_mb)
            held.append((placed.nodes[0], request))
            if len(held) > HELD:
                name, gone = held.popleft()
                cluster.release(name, gone.workload, gone.cpu_millis, gone.memory_mb)
    return samples


def _oracle(full: World) -> float:
    """The median of the oracle on the same cluster, whose answers must be the same."""
    samples = []
    for request in sample(full.requests, ORACLE_SAMPLES, 0):
        wanted = asked(request)
        found: list[str] = []

        def work(wanted: oracle.OracleRequest = wanted, found: list[str] = found) -> None:
            found.extend(oracle.place(full.nodes, full.reservations, wanted, 1))

        samples.append(seconds(work))
        assert found == list(place(full.cluster, request, 1).nodes), f"the oracle places {request} elsewhere"
    return median(samples)


def decisions(options: Options) -> Iterable[Row]:
    """Environments of five replicas onto empty nodes: chosen and reserved, one environment after the other."""
    nodes, environments = options.size(5000, 500), options.size(20_000, 2000)
    size = f"{environments:,} environments × 5 on {nodes:,} nodes"
    per_second = median_of(options.runs, lambda: _fill(nodes, environments))
    small = median_of(options.runs, lambda: _fill(nodes // 10, environments // 10))
    target, aim = "≥ 40,000/s", "≥ 150,000/s"
    yield Figure(
        "placements, decision only", per_second, "/s", size, NOMAD_PER_SECOND, per_second / NOMAD_PER_SECOND, target, aim,
        per_second >= 40_000, per_second >= 150_000,
    )  # fmt: skip
    yield Figure(
        "placements, decision only, against kube-scheduler", per_second, "/s", size, KUBE_PER_SECOND,
        per_second / KUBE_PER_SECOND,
    )  # fmt: skip
    yield growth("placements, decision only", 1 / per_second, 1 / small, size)


def _fill(nodes: int, environments: int) -> float:
    """Placements per second."""
    cluster = Cluster()
    for number in range(nodes):
        item = node(number, 64000, 262144)
        cluster.set_node(item.name, item.labels, item.platform, item.cpu_millis, item.memory_mb)
    requests = [Request(f"environment/shop/app-{number}/production", 100, 256) for number in range(environments)]
    work = _placing(cluster, requests)
    with quiet():
        return 5 * environments / seconds(work)


def _placing(cluster: Cluster, requests: list[Request]) -> Callable[[], None]:
    def work() -> None:
        for request in requests:
            placed = place(cluster, request, 5)
            assert not placed.shortfall
            for name in placed.nodes:
                cluster.reserve(name, request.workload, request.cpu_millis, request.memory_mb)

    return work
