"""Clusters to measure on: nodes in regions and classes, filled with replicas; the same for every run."""

from dataclasses import dataclass
from itertools import islice
from random import Random

from services.scheduler.placement import Cluster, Request
from tests import oracle

REGIONS = ("ap", "eu", "sa", "us-east", "us-west")
PLATFORMS = ("linux/amd64", "linux/arm64")
POOLS = ("batch", "build", "edge", "gpu", "web")
SIZES = ((100, 256), (250, 512), (500, 1024), (1000, 2048))
WANTS: tuple[tuple[tuple[tuple[str, str], ...], tuple[str, ...]], ...] = (
    ((), ()),
    ((), ("linux/amd64",)),
    ((("region", "eu"),), ("linux/amd64", "linux/arm64")),
    ((("pool", "web"),), ("linux/arm64",)),
    ((("pool", "gpu"), ("region", "us-east")), ()),
)


@dataclass(slots=True)
class World:
    """One cluster, told to the production code and written down for the oracle."""

    cluster: Cluster
    nodes: list[oracle.OracleNode]
    reservations: list[oracle.OracleReservation]
    requests: list[Request]
    """One per workload that has replicas."""


def node(number: int, cpu_millis: int, memory_mb: int) -> oracle.OracleNode:
    """Node `number`; there are 50 classes: 5 regions, 2 platforms, 5 pools."""
    labels = {"region": REGIONS[number % 5], "pool": POOLS[number // 10 % 5]}
    platform = PLATFORMS[number // 5 % 2]
    return oracle.OracleNode(f"node-{number:05}", labels, platform, cpu_millis, memory_mb)


def world(nodes: int, replicas: int, cpu_millis: int = 64000, memory_mb: int = 131072) -> World:
    """`replicas` in workloads of five, spread over nodes of a few sizes, most of them with room left."""
    random = Random(1)
    made = [node(number, cpu_millis, memory_mb - number % 7 * 4096) for number in range(nodes)]
    cluster = Cluster()
    for item in made:
        cluster.set_node(item.name, item.labels, item.platform, item.cpu_millis, item.memory_mb)
    reservations = []
    requests = []
    for number in range(replicas // 5):
        size, wants = SIZES[number % 4], WANTS[number % len(WANTS)]
        request = Request(f"environment/shop/app-{number}/production", *size, *wants)
        requests.append(request)
        for item in random.sample(made, 5):
            reservations.append(oracle.OracleReservation(item.name, request.workload, *size))
            cluster.reserve(item.name, request.workload, *size)
    return World(cluster, made, reservations, requests)


def asked(request: Request) -> oracle.OracleRequest:
    """The request as the oracle reads it."""
    return oracle.OracleRequest(
        request.workload, request.cpu_millis, request.memory_mb, dict(request.constraints), request.platforms
    )


def sample(requests: list[Request], count: int, seed: int) -> list[Request]:
    """`count` of the requests, in random order."""
    random = Random(seed)
    return list(islice((random.choice(requests) for _ in range(count)), count))
