"""The pods of a production cluster, one after the other: the same placements as the oracle, and how long they take.

Nobody leaves, so that the cluster fills up: what a test does with departures, this does with a crowd.
"""

import csv
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter

from bench.harness import Figure, Options, Row, Unmeasured, quiet
from services.scheduler.placement import Cluster, Request, place
from tests import oracle

FIGURE = "the Alibaba 2023 trace"


def folder() -> Path:
    """Where `STEER_BENCH_DATA` says, else beside the repository."""
    data = os.environ.get("STEER_BENCH_DATA") or Path(__file__).parents[2] / "shared" / "data"
    return Path(data) / "alibaba-gpu-2023"


def run(options: Options) -> Iterable[Row]:
    if not (folder() / "pods.csv").is_file():
        yield Unmeasured(FIGURE, "STEER_BENCH_DATA names no folder with alibaba-gpu-2023/pods.csv")
        return
    nodes = [
        oracle.OracleNode(
            row["sn"], {"region": row["model"]}, "linux/amd64", int(row["cpu_milli"]), int(row["memory_mib"])
        )
        for row in _rows("nodes.csv")
    ]
    pods = _rows("pods.csv")[: options.size(10_000, 800)]
    requests = [_request(pod) for pod in pods]
    with quiet():
        ours, per_second = _timed(len(requests), lambda: _place(nodes, requests))
        theirs, baseline = _timed(len(requests), lambda: _oracle(nodes, requests))
    size = f"{len(nodes):,} nodes, {len(pods):,} pods"
    same = ours == theirs
    yield Figure(FIGURE, per_second, "/s", size, baseline, per_second / baseline, "same placements", met=same)


def _rows(name: str) -> list[dict[str, str]]:
    with (folder() / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _request(pod: dict[str, str]) -> Request:
    """Effective resources; pods of one kind and size are replicas of the same workload."""
    millis, megabytes = int(pod["cpu_milli"]) or 100, int(pod["memory_mib"]) or 256
    return Request(f"{pod['qos']}/{millis}/{megabytes}", millis, megabytes)


Placements = list[str | None]


def _timed(count: int, work: Callable[[], Placements]) -> tuple[Placements, float]:
    before = perf_counter()
    placements = work()
    return placements, count / (perf_counter() - before)


def _place(nodes: list[oracle.OracleNode], requests: list[Request]) -> Placements:
    cluster = Cluster()
    for node in nodes:
        cluster.set_node(node.name, node.labels, node.platform, node.cpu_millis, node.memory_mb)
    found: Placements = []
    for request in requests:
        placed = place(cluster, request, 1).nodes
        found.append(placed[0] if placed else None)
        if placed:
            cluster.reserve(placed[0], request.workload, request.cpu_millis, request.memory_mb)
    return found


def _oracle(nodes: list[oracle.OracleNode], requests: list[Request]) -> Placements:
    """With the sums kept from pod to pod: the seed's algorithm adds all of them up each time, and would take hours."""
    by_name = {node.name: node for node in nodes}
    sums: dict[str, oracle.Tally] = {}
    cpu: dict[str, int] = {}
    memory: dict[str, int] = {}
    found: Placements = []
    for request in requests:
        mine = sums.setdefault(request.workload, oracle.Tally(cpu, memory))
        wanted = oracle.OracleRequest(request.workload, request.cpu_millis, request.memory_mb)
        name = oracle.pick(nodes, mine, wanted)
        found.append(name)
        if name is not None:
            oracle.count_replica(mine, by_name[name], wanted)
    return found
