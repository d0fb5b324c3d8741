"""Who waits for room is woken by what could cure it, and by nothing else."""

from random import Random

from services.scheduler.placement import Cluster, Request, place
from services.scheduler.waiting import Waiting

B = "environment/shop/b/production"


def big(workload: str = B, memory_mb: int = 3000, **wanted: object) -> Request:
    return Request(workload, 100, memory_mb, **wanted)  # type: ignore[arg-type]


def test_scenario_2_a_capacity_event_older_than_the_waiting_is_not_lost() -> None:
    cluster = Cluster()
    waiting = Waiting(cluster)
    cluster.set_node("n1", {}, "linux/amd64", 8000, 3000)
    cluster.reserve("n1", "environment/shop/a/production", 100, 1000)
    assert place(cluster, big(), 1).shortfall == 1
    cluster.release("n1", "environment/shop/a/production", 100, 1000)  # before B is added, after it was judged
    waiting.add(big())
    assert waiting.cured_by("n1") == (B,)


def test_scenario_2b_an_irrelevant_change_of_labels_wakes_nobody() -> None:
    cluster = Cluster()
    waiting = Waiting(cluster)
    cluster.set_node("n1", {"colour": "red"}, "linux/amd64", 8000, 2000)
    waiting.add(big())
    cluster.set_node("n1", {"colour": "blue"}, "linux/amd64", 8000, 2000)
    assert waiting.cured_by("n1") == ()


def test_each_kind_of_cure_wakes() -> None:
    cluster = Cluster()
    waiting = Waiting(cluster)
    waiting.add(big(constraints=(("disk", "ssd"),)))
    assert waiting.cured_by("n1") == ()
    cluster.set_node("n1", {"disk": "hdd"}, "linux/amd64", 8000, 8000)
    assert waiting.cured_by("n1") == ()
    cluster.set_node("n1", {"disk": "ssd"}, "linux/amd64", 8000, 8000, "cordoned")
    assert waiting.cured_by("n1") == ()
    cluster.set_node("n1", {"disk": "ssd"}, "linux/amd64", 8000, 8000)
    assert waiting.cured_by("n1") == (B,)


def test_a_pinned_workload_is_woken_by_its_node_alone() -> None:
    cluster = Cluster()
    waiting = Waiting(cluster)
    waiting.add(big(pin="n2"))
    for name in ("n1", "n2"):
        cluster.set_node(name, {}, "linux/amd64", 8000, 8000)
    assert waiting.cured_by("n1") == ()
    assert waiting.cured_by("n2") == (B,)


def test_a_node_that_holds_a_replica_does_not_cure_one_that_wants_distinct_nodes() -> None:
    cluster = Cluster()
    waiting = Waiting(cluster)
    cluster.set_node("n1", {}, "linux/amd64", 8000, 8000)
    cluster.reserve("n1", B, 100, 256)
    waiting.add(big(distinct_nodes=True))
    assert waiting.cured_by("n1") == ()
    cluster.release("n1", B, 100, 256)
    assert waiting.cured_by("n1") == (B,)


def test_those_that_fit_are_named_in_order_and_those_too_big_are_not() -> None:
    cluster = Cluster()
    waiting = Waiting(cluster)
    cluster.set_node("n1", {}, "linux/amd64", 8000, 1000)
    for name, memory_mb in (("c", 1000), ("a", 500), ("d", 1001), ("b", 999)):
        waiting.add(big(name, memory_mb))
    assert waiting.cured_by("n1") == ("a", "b", "c")


def test_a_request_replaces_the_earlier_one_of_its_workload() -> None:
    cluster = Cluster()
    waiting = Waiting(cluster)
    cluster.set_node("n1", {}, "linux/amd64", 8000, 1000)
    waiting.add(big(memory_mb=500))
    waiting.add(big(memory_mb=5000))
    assert (len(waiting), B in waiting) == (1, True)
    assert waiting.cured_by("n1") == ()
    waiting.discard(B)
    waiting.discard(B)
    assert (len(waiting), B in waiting) == (0, False)


def test_whoever_would_fit_is_named_in_random_worlds() -> None:
    for seed in range(200):
        random = Random(seed)
        cluster = Cluster()
        waiting = Waiting(cluster)
        names = [f"n{number}" for number in range(8)]
        for name in names:
            labels = {"disk": random.choice(["ssd", "hdd"])}
            reason = random.choice(["", "", "down"])
            cluster.set_node(name, labels, "linux/amd64", random.choice([0, 100, 1000]), 1000, reason)
            cluster.reserve(name, "other", random.choice([1, 50, 950]), random.choice([1, 400, 950]))
        requests = [
            Request(
                f"w{number}",
                random.choice([10, 100]),
                random.choice([10, 100, 700]),
                random.choice([(), (("disk", "ssd"),)]),
                pin=random.choice([None, None, "n1"]),
            )
            for number in range(20)
        ]
        for request in requests:
            waiting.add(request)
        for request in random.sample(requests, 5):
            waiting.discard(request.workload)
        left = [request for request in requests if request.workload in waiting]
        for name in names:
            others = frozenset(names) - {name}
            fit = [request.workload for request in left if place(cluster, request, 1, others).nodes]
            assert waiting.cured_by(name) == tuple(sorted(fit))
