"""Placement, scenario by scenario: what platform engineers rely on, and what users of such systems reported."""

import pytest

from services.scheduler.node_index import Sizes
from services.scheduler.placement import Cluster, Request, place

WEB = "environment/shop/web/production"
API = "environment/shop/api/production"


def cluster_of(*names: str, memory_mb: int = 1024, cpu_millis: int = 4000, platform: str = "linux/amd64") -> Cluster:
    cluster = Cluster()
    for name in names:
        cluster.set_node(name, {}, platform, cpu_millis, memory_mb)
    return cluster


def request(workload: str = WEB, cpu_millis: int = 100, memory_mb: int = 256, **wanted: object) -> Request:
    return Request(workload, cpu_millis, memory_mb, **wanted)  # type: ignore[arg-type]


class TestPlacement:
    def test_only_the_node_whose_region_matches_is_chosen(self) -> None:
        cluster = Cluster()
        cluster.set_node("n1", {"region": "us"}, "linux/amd64", 4000, 8192)
        cluster.set_node("n2", {"region": "eu"}, "linux/amd64", 4000, 1024)
        placed = place(cluster, request(constraints=(("region", "eu"),)), 2)
        assert placed.nodes == ("n2", "n2")
        assert placed.reasons["rejected"] == {"labels": 1}

    def test_a_constraint_with_an_empty_value_matches_nodes_without_the_label(self) -> None:
        cluster = Cluster()
        cluster.set_node("n1", {"disk": "ssd"}, "linux/amd64", 4000, 8192)
        cluster.set_node("n2", {}, "linux/amd64", 4000, 1024)
        assert place(cluster, request(constraints=(("disk", ""),)), 1).nodes == ("n2",)

    @pytest.mark.parametrize("reason", ["down", "cordoned", "draining", "suspect"])
    def test_unavailable_nodes_are_never_chosen(self, reason: str) -> None:
        cluster = cluster_of("n2")
        cluster.set_node("n1", {}, "linux/amd64", 4000, 8192, reason)
        placed = place(cluster, request(), 2)
        assert placed.nodes == ("n2", "n2")
        assert placed.reasons["rejected"] == {reason: 1}

    def test_an_excluded_node_is_skipped(self) -> None:
        placed = place(cluster_of("n1", "n2"), request(), 1, frozenset({"n1"}))
        assert placed.nodes == ("n2",)
        assert placed.reasons["rejected"] == {"excluded": 1}

    def test_three_replicas_spread_over_three_nodes(self) -> None:
        assert sorted(place(cluster_of("n1", "n2", "n3"), request(), 3).nodes) == ["n1", "n2", "n3"]

    def test_replicas_spread_over_regions_before_they_follow_free_memory(self) -> None:
        cluster = Cluster()
        cluster.set_node("n1", {"region": "eu"}, "", 0, 8192)
        cluster.set_node("n2", {"region": "eu"}, "", 0, 4096)
        cluster.set_node("n3", {"region": "us"}, "", 0, 1024)
        assert place(cluster, request(), 3).nodes == ("n1", "n3", "n2")

    def test_what_does_not_fit_is_a_shortfall(self) -> None:
        placed = place(cluster_of("n1", memory_mb=512), request(), 3)
        assert placed.nodes == ("n1", "n1")
        assert placed.shortfall == 1
        assert placed.reasons["rejected"] == {"memory": 1}

    def test_reservations_of_other_workloads_count(self) -> None:
        cluster = cluster_of("n1", memory_mb=512)
        cluster.reserve("n1", API, 100, 256)
        placed = place(cluster, request(), 2)
        assert (placed.nodes, placed.shortfall) == (("n1",), 1)

    def test_a_replica_that_drains_or_stops_counts_until_it_is_released(self) -> None:
        cluster = cluster_of("n1", memory_mb=512)
        cluster.reserve("n1", WEB, 100, 512)
        assert place(cluster, request(), 1).shortfall == 1
        cluster.release("n1", WEB, 100, 512)
        assert place(cluster, request(), 1).nodes == ("n1",)

    def test_a_pinned_workload_goes_to_its_node_and_nowhere_else(self) -> None:
        cluster = cluster_of("n1", "n2", "n3")
        assert place(cluster, request(pin="n3"), 1).nodes == ("n3",)
        cluster.reserve("n3", API, 100, 1024)
        placed = place(cluster, request(pin="n3"), 1)
        assert placed.nodes == ()
        assert placed.reasons["rejected"] == {"pin": 2, "memory": 1}
        assert placed.reasons["pin"] == {"node": "n3", "rejected": "memory"}

    def test_ties_go_to_the_first_name_and_every_call_says_the_same(self) -> None:
        cluster = cluster_of("n3", "n1", "n2")
        assert place(cluster, request(), 2).nodes == ("n1", "n2")
        assert place(cluster, request(), 2) == place(cluster, request(), 2)

    def test_unreported_capacity_is_unlimited_and_the_most_attractive(self) -> None:
        cluster = cluster_of("n1", memory_mb=262144)
        cluster.set_node("n2", {}, "linux/amd64", 0, 0)
        placed = place(cluster, request(cpu_millis=4000, memory_mb=200000), 5)
        assert placed.nodes == ("n2", "n1", "n2", "n2", "n2")
        assert placed.reasons["picks"][0]["free_memory_mb"] is None

    def test_distinct_nodes_never_share_one(self) -> None:
        cluster = cluster_of("n1", "n2")
        cluster.reserve("n1", WEB, 100, 256)
        placed = place(cluster, request(distinct_nodes=True), 2)
        assert (placed.nodes, placed.shortfall) == (("n2",), 1)
        assert placed.reasons["rejected"] == {"distinct_nodes": 2}

    def test_the_replicas_of_a_region_count_though_their_node_is_down(self) -> None:
        cluster = Cluster()
        cluster.set_node("n1", {"region": "eu"}, "", 0, 8192, "down")
        cluster.set_node("n2", {"region": "eu"}, "", 0, 8192)
        cluster.set_node("n3", {"region": "us"}, "", 0, 1024)
        cluster.reserve("n1", WEB, 100, 256)
        assert place(cluster, request(), 1).nodes == ("n3",)

    def test_reservations_wait_for_a_node_that_is_not_known_yet(self) -> None:
        cluster = Cluster()
        cluster.reserve("n1", API, 100, 1000)
        cluster.set_node("n1", {}, "", 4000, 1024)
        assert place(cluster, request(), 1).shortfall == 1
        cluster.remove_node("n1")
        cluster.set_node("n1", {}, "", 4000, 1024)
        assert place(cluster, request(), 1).shortfall == 1
        cluster.release("n1", API, 100, 1000)
        assert place(cluster, request(), 1).nodes == ("n1",)

    def test_a_node_that_gets_its_cpu_back_is_found_again_among_those_that_lack_it(self) -> None:
        cluster = Cluster(Sizes(block=1))
        for name in ("n1", "n2", "n3", "n4", "n5", "n6"):
            cluster.set_node(name, {}, "", 1000, 1024)
            cluster.reserve(name, API, 1000, 1)
        assert place(cluster, request(), 1).reasons["rejected"] == {"cpu": 6}
        cluster.release("n5", API, 1000, 1)
        cluster.reserve("n5", API, 1, 1)
        assert place(cluster, request(), 1).nodes == ("n5",)

    def test_none_wanted_is_none_placed(self) -> None:
        placed = place(cluster_of("n1"), request(), 0)
        assert (placed.nodes, placed.shortfall) == ((), 0)

    def test_nothing_stays_reserved_by_asking(self) -> None:
        cluster = cluster_of("n1", memory_mb=256)
        assert place(cluster, request(), 1).nodes == place(cluster, request(), 1).nodes == ("n1",)
        assert cluster.replicas(WEB) == {}

    def test_a_trial_is_undone_exactly(self) -> None:
        cluster = cluster_of("n1", memory_mb=512)
        cluster.reserve("n1", API, 100, 256)
        with cluster.trial():
            cluster.reserve("n1", WEB, 100, 256)
            with cluster.trial():
                cluster.release("n1", API, 100, 256)
                assert place(cluster, request(), 1).nodes == ("n1",)
            assert place(cluster, request(), 1).shortfall == 1
            assert cluster.replicas(WEB) == {"n1": 1}
        assert cluster.replicas(WEB) == {}
        assert cluster.replicas(API) == {"n1": 1}
        assert place(cluster, request(), 2).nodes == ("n1",)

    def test_a_trial_is_undone_when_it_fails(self) -> None:
        cluster = cluster_of("n1", memory_mb=256)
        with pytest.raises(RuntimeError), cluster.trial():
            cluster.reserve("n1", WEB, 100, 256)
            raise RuntimeError
        assert place(cluster, request(), 1).nodes == ("n1",)

    def test_releasing_what_is_not_reserved_is_a_bug(self) -> None:
        with pytest.raises(AssertionError, match="has nothing reserved on n1"):
            cluster_of("n1").release("n1", WEB, 100, 256)


class TestUnsatisfiablePlacementConstraintErrors:
    def test_a_constraint_that_no_node_meets_is_named(self) -> None:
        placed = place(cluster_of("n1", "n2"), request(constraints=(("gpu", "a100"),)), 1)
        assert placed.shortfall == 1
        assert placed.reasons["rejected"] == {"labels": 2}
        assert placed.reasons["why"] == "1 of 1 replicas found no node: of 2 nodes 2 without gpu=a100"
        assert placed.reasons["examples"]["labels"][0] == {"node": "n1", "labels": {"gpu": ""}}


class TestPlacementConstraintSatisfiedByFullNode:
    def test_a_full_node_that_matches_is_reported_as_full(self) -> None:
        cluster = Cluster()
        cluster.set_node("n1", {"region": "eu"}, "linux/amd64", 4000, 128)
        cluster.set_node("n2", {"region": "us"}, "linux/amd64", 4000, 8192)
        placed = place(cluster, request(constraints=(("region", "eu"),)), 1)
        assert placed.reasons["rejected"] == {"labels": 1, "memory": 1}
        assert placed.reasons["examples"]["memory"] == [
            {"node": "n1", "free_memory_mb": 128, "free_cpu_millis": 4000},
        ]


class TestArchPlacement:
    @pytest.fixture
    def mixed(self) -> Cluster:
        cluster = Cluster()
        cluster.set_node("amd", {}, "linux/amd64", 4000, 8192)
        cluster.set_node("arm", {}, "linux/arm64", 4000, 8192)
        cluster.set_node("unknown", {}, "", 4000, 8192)
        return cluster

    @pytest.mark.parametrize(
        ("platforms", "nodes"),
        [
            (("linux/amd64",), {"amd"}),
            (("linux/arm64",), {"arm"}),
            (("linux/amd64", "linux/arm64"), {"amd", "arm"}),
            ((), {"amd", "arm", "unknown"}),
            (("linux/aarch64",), {"arm"}),
            ((" Linux/X86_64 ",), {"amd"}),
            (("linux/arm64/v8",), {"arm"}),
        ],
    )
    def test_an_image_runs_where_its_platforms_do(
        self, mixed: Cluster, platforms: tuple[str, ...], nodes: set[str]
    ) -> None:
        assert set(place(mixed, request(platforms=platforms), len(nodes)).nodes) == nodes

    def test_a_platform_that_no_node_has_is_named(self, mixed: Cluster) -> None:
        placed = place(mixed, request(platforms=("linux/riscv64",)), 1)
        assert (placed.nodes, placed.reasons["rejected"]) == ((), {"platform": 3})
        assert "not linux/riscv64" in placed.reasons["why"]

    def test_a_pin_to_a_node_of_another_platform_blames_that_node(self, mixed: Cluster) -> None:
        placed = place(mixed, request(platforms=("linux/amd64",), pin="arm"), 1)
        assert placed.nodes == ()
        assert placed.reasons["rejected"] == {"platform": 2, "pin": 1}
        assert placed.reasons["pin"] == {"node": "arm", "rejected": "platform"}

    def test_a_platform_that_is_not_known_is_compared_as_it_is(self) -> None:
        cluster = cluster_of("n1", platform="Plan9/MIPS")
        assert place(cluster, request(platforms=("plan9/mips",)), 1).nodes == ("n1",)
        assert place(cluster, request(platforms=("plan9/mips64",)), 1).shortfall == 1


class TestReasons:
    def test_scenario_1_unexplained_pending_accounts_for_every_node(self) -> None:
        cluster = Cluster()
        cluster.set_node("away", {"region": "eu"}, "linux/amd64", 4000, 8192, "down")
        cluster.set_node("left-out", {"region": "eu"}, "linux/amd64", 4000, 8192)
        cluster.set_node("arm", {"region": "eu"}, "linux/arm64", 4000, 8192)
        cluster.set_node("us", {"region": "us"}, "linux/amd64", 4000, 8192)
        cluster.set_node("small", {"region": "eu"}, "linux/amd64", 4000, 128)
        cluster.set_node("busy", {"region": "eu"}, "linux/amd64", 4000, 8192)
        cluster.reserve("busy", API, 4000, 256)
        wanted = request(constraints=(("region", "eu"),), platforms=("linux/amd64",))
        reasons = place(cluster, wanted, 1, frozenset({"left-out", "never-heard-of"})).reasons
        assert reasons["rejected"] == {
            "excluded": 1, "down": 1, "platform": 1, "labels": 1, "memory": 1, "cpu": 1,
        }  # fmt: skip
        assert (reasons["nodes"], reasons["considered"], reasons["feasible"]) == (6, 6, 0)
        assert {reason: [found["node"] for found in nodes] for reason, nodes in reasons["examples"].items()} == {
            "excluded": ["left-out"], "down": ["away"], "platform": ["arm"], "labels": ["us"], "memory": ["small"],
            "cpu": ["busy"],
        }  # fmt: skip
        assert reasons["why"] == (
            "1 of 1 replicas found no node: of 6 nodes 1 excluded, 1 down, 1 not linux/amd64, 1 without region=eu, "
            "1 with less than 256 MB of memory free, 1 with less than 100 millicores free"
        )

    def test_without_nodes_it_says_so(self) -> None:
        assert place(Cluster(), request(), 2).reasons["why"].endswith("there are no nodes")

    def test_the_picks_are_shown_with_the_key_that_won(self) -> None:
        cluster = cluster_of("n1")
        cluster.reserve("n1", WEB, 100, 256)
        assert place(cluster, request(), 1).reasons["picks"] == [
            {"node": "n1", "replicas_on_node": 1, "region": "", "replicas_in_region": 1, "free_memory_mb": 768}
        ]
