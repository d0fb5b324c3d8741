"""A standby that rehearses: it has little to look at when it leads, and decides as one that has only followed."""

from dataclasses import dataclass, field
from datetime import datetime

from services.scheduler.decide import MOST_IN_VAIN, decide
from services.scheduler.indexes import fold
from services.scheduler.looks import settle
from services.scheduler.rehearsal import rehearse
from services.scheduler.state import State
from services.scheduler.telemetry import attend, observe
from shared import subjects
from shared.model.environment import Environment, Replicas
from shared.model.live import NodeSample, ProxySample
from shared.runtime.encode import messages
from shared.service import Sample, Version
from shared.subjects import Key, Kind
from tests.unit.scheduler_world import ENV, World, spec


@dataclass
class Followed(World):
    """A leader's world with two standbys: one rehearses after each record, the other one only follows."""

    standby: State = field(default_factory=State)
    follower: State = field(default_factory=State)

    def publish(self, kind: Kind, key: Key, record: object) -> int:
        sequence = super().publish(kind, key, record)  # type: ignore[arg-type]
        version = Version(kind, key, sequence, record, self.now)  # type: ignore[arg-type]
        fold(self.follower, version)
        if self.state is not self.standby:
            fold(self.standby, version)
            rehearse(self.standby, self.now)
        return sequence

    def take_over(self) -> None:
        """From here on the standby that has rehearsed is the leader's state."""
        self.state = self.standby
        attend(self.standby, self.now)
        attend(self.follower, self.now)


def _writes(state: State, now: datetime) -> list[tuple[str, bytes]]:
    return [(message.subject, message.body) for message in messages("scheduler", decide(state, now), 0, now)]


def test_a_standby_has_nothing_to_look_at_once_all_is_done() -> None:
    world = Followed()
    world.serving(replicas=3, nodes=3)
    assert not world.standby.dirty
    assert world.follower.dirty


def test_a_standby_that_rehearsed_decides_as_one_that_only_followed() -> None:
    world = Followed()
    world.serving(replicas=3, nodes=3)
    world.release(2)
    world.deploy(2)
    world.settle()
    world.report(next(iter(world.replicas(release=1))), "failed")
    world.take_over()
    writes = _writes(world.standby, world.now)
    assert any(subject.startswith("steer.assignment.") for subject, _ in writes)
    assert writes == _writes(world.follower, world.now)
    assert len(world.standby.dirty) == 1


def test_what_a_standby_would_decide_is_left_to_the_leader() -> None:
    world = Followed()
    world.serving(replicas=2, nodes=2)
    world.report(next(iter(world.replicas())), "failed")
    for _ in range(3):
        rehearse(world.standby, world.now)
    assert ("environment", *ENV) in world.standby.dirty
    assert len(world.replicas()) == 2
    world.take_over()
    world.cooperate()
    assert len(world.replicas()) == 2
    assert all(record.attempt == 1 or not record.replaces for record in world.replicas().values())


def test_a_standby_knows_who_waits_for_a_node() -> None:
    world = Followed()
    world.nodes(1, memory=300)
    world.environment(2)
    world.release(1, **spec(memory=256))
    world.deploy(1)
    world.settle()
    assert len(world.replicas()) == 1
    world.take_over()
    assert not decide(world.state, world.now).decisions
    world.node("n2", memory=300)
    world.settle()
    assert len(world.replicas()) == 2


def test_a_standby_that_leads_finds_out_who_is_silent() -> None:
    world = Followed()
    world.serving(replicas=2, nodes=3)
    world.advance(600)
    world.silenced = {"n2"}
    world.take_over()
    world.advance(9)
    assert world.status("n2").state == "alive"
    world.advance(1)
    assert [world.status(name).state for name in ("n1", "n2", "n3")] == ["alive", "suspect", "alive"]
    world.advance(20)
    assert world.status("n2").state == "down"


def test_a_node_that_has_never_been_heard_is_found_out_too() -> None:
    world = World(silenced={"n1"})
    world.node("n1")
    world.settle()
    world.advance(10)
    assert world.status("n1").state == "suspect"


def test_a_leader_that_follows_again_forgets_what_it_heard() -> None:
    world = World()
    world.serving(replicas=2, nodes=3)
    world.advance(10)
    later = world.now.replace(hour=5)
    rehearse(world.state, later)
    assert not decide(world.state, later).decisions


def test_a_heartbeat_asks_for_no_look() -> None:
    world = World()
    world.serving(replicas=2, nodes=3)
    world.advance(60)
    observe(world.state, Sample("node", "n1", NodeSample(interval_seconds=2)), world.now)
    assert not decide(world.state, world.now).looks


def test_a_pass_ends_after_many_looks_in_vain_and_the_next_one_goes_on() -> None:
    state, now = State(), World().now
    for number in range(MOST_IN_VAIN + 10):
        environment = Environment(replicas=Replicas(min=1))
        fold(state, Version(subjects.ENVIRONMENT, ("shop", f"app-{number}", "test"), number + 1, environment, now))
    plan = decide(state, now)
    assert (len(plan.looks), plan.decisions, plan.wake_at) == (MOST_IN_VAIN, (), now)
    settle(state, plan, now)
    plan = decide(state, now)
    assert (len(plan.looks), plan.wake_at) == (10, None)


def test_a_proxy_that_is_heard_for_the_first_time_asks_for_a_look_at_all_that_follow_demand() -> None:
    world = World()
    world.nodes(1)
    world.environment(1, most=4)
    world.release(1, max_concurrency=5)
    world.deploy(1)
    world.cooperate()
    observe(world.state, Sample("proxy", "edge", ProxySample(version=1)), world.now)
    assert ("environment", *ENV) in world.state.dirty
