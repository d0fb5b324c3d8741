"""A production cluster's pods, placed one by one as they came and went, go where the oracle puts them.

The folder that the setting `STEER_BENCH_DATA` names (else `../shared/data` beside the repository) holds `alibaba-
gpu-2023/`.
"""

import csv
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.scheduler.placement import Cluster, Request, place

DATA = Path(os.environ.get("STEER_BENCH_DATA") or Path(__file__).parents[3] / "shared" / "data") / "alibaba-gpu-2023"

ASKED = 4
"""The oracle looks at every node: it is asked about one pod in so many, on the state that all of them have made."""

pytestmark = pytest.mark.skipif(
    not (DATA / "pods.csv").is_file(), reason="STEER_BENCH_DATA names no folder with alibaba-gpu-2023/pods.csv"
)


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def arrivals_and_departures(pods: list[dict[str, str]]) -> Iterator[tuple[bool, int]]:
    """`(arrives, number of the pod)` as time passes; who leaves at a moment makes room for who comes at it."""
    events = [(int(pod["creation_time"]), True, number) for number, pod in enumerate(pods)]
    events += [(int(pod["deletion_time"]), False, number) for number, pod in enumerate(pods) if pod["deletion_time"]]
    # Who leaves in the moment in which it came leaves after it.
    order = sorted(events, key=lambda event: (event[0], event[1], event[2]))
    came: set[int] = set()
    late: list[int] = []
    for _, arrives, number in order:
        if arrives:
            came.add(number)
            yield True, number
            if number in late:
                yield False, number
        elif number in came:
            yield False, number
        else:
            late.append(number)


def test_every_pod_goes_where_the_oracle_puts_it() -> None:
    nodes = [(row["sn"], row["model"], int(row["cpu_milli"]), int(row["memory_mib"])) for row in rows("nodes.csv")]
    region_of = {name: region for name, region, _, _ in nodes}
    cluster = Cluster()
    for name, region, cpu_millis, memory_mb in nodes:
        cluster.set_node(name, {"region": region}, "linux/amd64", cpu_millis, memory_mb)
    cpu, memory = dict.fromkeys(region_of, 0), dict.fromkeys(region_of, 0)
    pods = rows("pods.csv")
    in_node: dict[str, Counter[str]] = defaultdict(Counter)
    in_region: dict[str, Counter[str]] = defaultdict(Counter)
    held: dict[int, str] = {}

    def count(number: int, name: str, sign: int) -> None:
        millis, megabytes, workload = needs(pods[number])
        in_node[workload][name] += sign
        in_region[workload][region_of[name]] += sign
        cpu[name] += sign * millis
        memory[name] += sign * megabytes
        (cluster.reserve if sign > 0 else cluster.release)(name, workload, millis, megabytes)

    def best(number: int) -> str:
        """The rules of the oracle for a cluster that has nothing but capacity and regions: it is a long trace."""
        millis, megabytes, workload = needs(pods[number])
        mine, regional = in_node[workload], in_region[workload]
        return min(
            (mine.get(name, 0), regional.get(region, 0), memory[name] - memory_mb, name)
            for name, region, cpu_millis, memory_mb in nodes
            if memory[name] + megabytes <= memory_mb and cpu[name] + millis <= cpu_millis
        )[3]

    for arrives, number in arrivals_and_departures(pods):
        if arrives:
            millis, megabytes, workload = needs(pods[number])
            (node,) = place(cluster, Request(workload, millis, megabytes), 1).nodes
            if number % ASKED == 0:
                assert node == best(number)
            held[number] = node
            count(number, node, 1)
        else:
            count(number, held.pop(number), -1)
    assert not held
    assert not any(cpu.values()) and not any(memory.values())


def needs(pod: dict[str, str]) -> tuple[int, int, str]:
    """Effective resources, and the workload: pods of one kind and size are replicas of the same."""
    millis, megabytes = int(pod["cpu_milli"]) or 100, int(pod["memory_mib"]) or 256
    return millis, megabytes, f"{pod['qos']}/{millis}/{megabytes}"
