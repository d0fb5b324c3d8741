"""Scaling: resource targets, concurrency, idle to zero, activation. Scenario names are those of the reference."""

from datetime import timedelta
from typing import Any

import pytest

from services.scheduler.telemetry import attend, observe
from shared import subjects
from shared.model.activation import Activation
from shared.model.deployment import Scale
from shared.model.environment import Autoscale, Environment, Replicas
from shared.model.live import Demand, InstanceUsage, NodeSample, ProxySample
from shared.service import Sample
from tests.unit.scheduler_world import ENV, World, request_id

NAME = "/".join(ENV)


class Scaled(World):
    """A world with one proxy and usage that a test sets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.demand: dict[str, Demand | None] = {"edge": Demand()}
        self.cpu: float | None = None
        self.memory_mb = 0.0

    def beat(self) -> None:
        super().beat()
        for node in self.names(subjects.NODE):
            if self.cpu is not None and node not in self.silenced:
                usage = {
                    name: InstanceUsage(cpu_percent=self.cpu, memory_mb=self.memory_mb)
                    for where, name in self.replicas()
                    if where == node
                }
                observe(self.state, Sample("node", node, NodeSample(interval_seconds=2, instances=usage)), self.now)
        for proxy, demand in self.demand.items():
            if demand is not None:
                body = ProxySample(version=10**6, demand={NAME: demand})
                observe(self.state, Sample("proxy", proxy, body), self.now)

    def ask(self, inflight: int, parked: int = 0, **fields: Any) -> None:
        self.demand["edge"] = Demand(inflight=inflight, parked=parked, last_request_at=self.now, **fields)
        self.beat()

    def count(self) -> int:
        return len(self.replicas("run"))

    def work(self, seconds: float) -> list[str]:
        """Time goes on while the agents answer at once."""
        outcomes = []
        for _ in range(int(seconds)):
            outcomes += self.advance(1)
            self.all_healthy()
            self.route()
            self.agents_stop()
            outcomes += self.settle()
        return outcomes

    def quiet(self) -> None:
        self.demand["edge"] = Demand(
            last_request_at=self.demand["edge"].last_request_at if self.demand["edge"] else None
        )


def scaled(least: int, most: int, idle: float = 0, **service: Any) -> Scaled:
    world = Scaled()
    world.nodes(3)
    spec = Environment(replicas=Replicas(min=least, max=most), idle_timeout_seconds=idle)
    world.publish(subjects.ENVIRONMENT, ENV, spec)
    world.release(1, **service)
    world.deploy(1)
    world.cooperate()
    world.work(20)
    return world


def cpu(target: int = 50) -> dict[str, Any]:
    return {"autoscale": Autoscale(target_cpu_percent=target)}


def test_up_on_cpu() -> None:
    world = scaled(2, 10, **cpu())
    world.cpu = 90
    world.work(16)
    assert world.count() == 4


def test_clamp_to_max() -> None:
    world = scaled(2, 3, **cpu())
    world.cpu = 100
    world.work(16)
    assert world.count() == 3


def test_up_on_requests_per_second() -> None:
    world = scaled(1, 10, autoscale=Autoscale(target_rps_per_replica=100))
    world.ask(3, rps=500)
    world.work(16)
    assert world.count() == 5


def test_up_on_memory() -> None:
    world = scaled(2, 10, autoscale=Autoscale(target_memory_percent=50))
    world.cpu, world.memory_mb = 1, 256
    world.work(16)
    assert world.count() == 4


def test_down_only_after_the_hold_and_in_one_step() -> None:
    world = scaled(1, 10, **cpu())
    world.cpu = 200
    world.work(16)
    assert world.count() == 4
    world.cpu = 10
    world.work(5 * 60 - 10)
    assert world.count() == 4
    world.work(30)
    assert world.count() == 1


def test_freeze_without_data() -> None:
    world = scaled(3, 10, **cpu(10))
    before = world.sequence
    world.work(600)
    assert world.count() == 3
    assert world.sequence == before


def test_cooldown_blocks_a_second_change_then_allows_it() -> None:
    world = scaled(1, 10, **cpu())
    world.cpu = 100
    world.work(16)
    assert world.count() == 2
    world.work(120)
    assert world.count() == 2
    world.work(80)
    assert world.count() == 4


def test_no_target_is_no_policy() -> None:
    world = scaled(2, 10)
    world.cpu = 100
    world.work(60)
    assert world.count() == 2
    assert ENV not in world.state.tables[subjects.SCALE]


def test_scenario_15_metrics_outage_holds_the_count() -> None:
    world = scaled(1, 10, max_concurrency=10)
    world.ask(35)
    world.work(2)
    assert world.count() == 4
    world.demand["edge"] = None
    world.work(300)
    assert world.count() == 4


def test_scenario_14_a_missing_sample_moves_nothing_by_itself() -> None:
    world = scaled(4, 10, **cpu())
    world.cpu = 50
    world.work(30)
    key = next(iter(world.replicas()))
    world.silenced = {key[0]}
    world.work(8)
    assert world.count() == 4
    assert ENV not in world.state.tables[subjects.SCALE]


@pytest.mark.parametrize(
    ("cap", "least", "most", "to_zero", "inflight", "wanted"),
    [(10, 1, 5, False, 0, 1), (10, 1, 5, False, 10, 1), (10, 1, 5, False, 11, 2), (10, 1, 5, False, 35, 4),
     (10, 1, 5, False, 200, 5), (1, 0, 8, True, 6, 6), (10, 0, 5, True, 0, 0)],
)  # fmt: skip
def test_the_table_of_concurrency(cap: int, least: int, most: int, to_zero: bool, inflight: int, wanted: int) -> None:
    world = scaled(least, most, max_concurrency=cap, scale_to_zero=to_zero)
    world.ask(inflight)
    if not inflight:
        world.quiet()
    world.work(80 if not wanted else 2)
    assert world.count() == wanted


def test_w11_parked_requests_count_as_demand() -> None:
    world = scaled(1, 8, max_concurrency=10)
    world.ask(10, parked=30)
    world.work(1)
    assert world.count() == 4


def test_concurrency_goes_down_to_the_highest_number_wanted_in_the_hold() -> None:
    world = scaled(1, 9, max_concurrency=10)
    world.ask(90)
    world.work(1)
    assert world.count() == 9
    world.ask(20)
    world.work(30)
    world.ask(50)
    world.work(10)
    world.ask(10)
    world.work(30)
    assert world.count() == 5


def test_a_gap_in_the_data_never_scales_down() -> None:
    world = scaled(1, 9, max_concurrency=10)
    world.demand["other"] = Demand(inflight=60)
    world.ask(20)
    world.work(1)
    assert world.count() == 8
    world.demand["other"] = None
    world.work(70)
    assert world.count() == 8


def test_the_hold_survives_a_change_of_leader() -> None:
    world = scaled(1, 9, max_concurrency=10)
    world.ask(90)
    world.work(1)
    world.ask(10)
    world.work(40)
    attend(world.state, world.now)
    world.work(18)
    assert world.count() == 9
    world.work(4)
    assert world.count() == 1


def test_cools_after_the_idle_time() -> None:
    world = scaled(1, 3, idle=120, scale_to_zero=True)
    world.ask(0)
    world.quiet()
    world.work(119)
    assert world.count() == 1
    world.work(3)
    assert world.count() == 0
    assert world.get(subjects.SCALE, ENV, Scale).reason == "no request for 120 s"


def test_a_request_that_never_starts_does_not_hold_the_scaling() -> None:
    world = scaled(1, 3, idle=60, scale_to_zero=True)
    world.publish(subjects.ACTIVE, ENV, world.active().model_copy(update={"request_floor": request_id(7)}))
    world.deploy(1, id=6)
    world.ask(0)
    world.quiet()
    world.work(75)
    assert f"deploy_refused/{NAME}/{request_id(6)}" in world.notices()
    assert world.count() == 0


def test_recent_and_running_requests_keep_it_warm() -> None:
    world = scaled(1, 3, idle=60, scale_to_zero=True)
    world.ask(1)
    world.demand["edge"] = Demand(inflight=1, last_request_at=world.now)
    world.work(300)
    assert world.count() == 1


def test_no_idle_time_never_cools() -> None:
    world = scaled(1, 3, scale_to_zero=True)
    world.quiet()
    world.work(300)
    assert world.count() == 1


def test_a_blackout_freezes_idle_too() -> None:
    world = scaled(1, 3, idle=60, scale_to_zero=True)
    world.demand["edge"] = None
    world.work(600)
    assert world.count() == 1


def cold(**service: Any) -> Scaled:
    world = scaled(1, 10, idle=60, scale_to_zero=True, **service)
    world.quiet()
    world.work(90)
    assert world.count() == 0
    return world


def test_an_activation_wakes_at_once_and_only_once() -> None:
    world = cold()
    world.publish(subjects.ACTIVATION, ("edge", *ENV), Activation(requested_at=world.now))
    world.settle()
    assert world.count() == 1
    before = world.get(subjects.SCALE, ENV, Scale)
    world.publish(subjects.ACTIVATION, ("edge", *ENV), Activation(requested_at=world.now))
    world.settle()
    assert world.get(subjects.SCALE, ENV, Scale) == before


def test_scenario_18_five_hundred_cold_requests_are_one_decision() -> None:
    world = cold(max_concurrency=50)
    world.publish(subjects.ACTIVATION, ("edge", *ENV), Activation(requested_at=world.now, parked=500))
    outcomes = world.settle()
    assert world.count() == 10
    assert len([outcome for outcome in outcomes if "scale" in outcome]) == 1


def test_w10_a_woken_replica_is_not_cooled_before_it_was_healthy_and_idle_for_the_whole_time() -> None:
    world = cold(max_concurrency=10)
    world.publish(subjects.ACTIVATION, ("edge", *ENV), Activation(requested_at=world.now))
    world.advance(100)  # the replica takes long to start
    assert world.count() == 1
    world.all_healthy()
    world.work(58)
    assert world.count() == 1
    world.work(6)
    assert world.count() == 0


def test_an_activation_that_came_before_the_cooling_but_was_not_seen_still_wakes() -> None:
    """Compared by sequence: the cooling names the activations that it had seen."""
    world = cold()
    scale = world.get(subjects.SCALE, ENV, Scale)
    world.publish(subjects.ACTIVATION, ("edge", *ENV), Activation(requested_at=world.now - timedelta(seconds=1)))
    world.publish(subjects.SCALE, ENV, scale)  # lands after it, decided without it
    world.settle()
    assert world.count() == 1


def test_scaling_waits_while_a_deployment_is_on_its_way() -> None:
    world = scaled(1, 8, max_concurrency=10)
    world.release(2, max_concurrency=10)
    world.deploy(2)
    world.settle()
    world.ask(40)
    world.settle()
    assert len(world.replicas(release=1)) == 1


def test_an_idle_fleet_with_policies_writes_nothing() -> None:
    world = cold()
    before = world.sequence
    world.work(300)
    assert world.sequence == before
