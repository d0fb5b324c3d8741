"""What a decision has heard is in its observation, also where it only kept something from happening.

The world makes every decision again from its explanation, and fails where that comes out otherwise (`made_again`).
"""

from services.scheduler.telemetry import observe
from shared import subjects
from shared.model.live import Demand, ProxySample
from shared.model.node import NodeControl
from shared.service import Sample
from tests.unit.scheduler_world import World
from tests.unit.test_scheduler_scaling import scaled


def test_requests_that_keep_an_environment_warm_are_told_by_what_else_is_decided_meanwhile() -> None:
    world = scaled(1, 3, idle=60, scale_to_zero=True)
    world.work(20)
    world.demand["edge"] = Demand(inflight=1)
    world.work(10)
    busy_at = world.now
    world.demand["edge"] = Demand()
    world.work(50)
    ((node, _),) = world.replicas("run")
    world.publish(subjects.NODE_CONTROL, (node,), NodeControl(drain=True))
    world.settle()
    assert world.count() == 2, "its replacement starts"
    assert world.decision().observation["busy_at"] == busy_at


def test_a_proxy_that_fell_silent_and_so_holds_a_scale_down_is_told() -> None:
    world = scaled(1, 9, max_concurrency=10)
    world.demand["other"] = Demand(inflight=60)
    world.ask(20)
    world.work(1)
    world.demand["other"] = None
    world.work(30)
    world.report(next(iter(world.replicas("run"))), "failed")
    world.work(1)
    assert world.count() == 8
    assert world.decision().observation["quiet_proxies"] == ["other"]


class Complaining(World):
    """With a proxy that follows the routes and cannot apply them."""

    def beat(self) -> None:
        super().beat()
        observe(self.state, Sample("proxy", "edge", ProxySample(version=10**6, error="cannot apply")), self.now)


def test_a_proxy_that_complains_holds_a_stop_until_the_deadline_and_is_told() -> None:
    world = Complaining()
    world.serving(replicas=2)
    world.advance(20)
    world.environment(1)
    world.settle()
    world.route()
    world.advance(29)
    assert len(world.replicas("drain")) == 1
    world.advance(2)
    assert len(world.replicas("stop")) == 1
    assert "proxies behind: edge: cannot apply" in world.decision().outcome
    assert world.decision().observation["errors"] == {"edge": "cannot apply"}
