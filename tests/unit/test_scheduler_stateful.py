"""Stateful services: one replica, stop before start, one pin for all volumes, epochs that only rise."""

from typing import Any

import pytest

from shared import subjects
from shared.model.node import NodeControl
from shared.model.run import RunSpec, VolumeMount
from shared.model.volume import Volume, VolumeStatus
from tests.unit.scheduler_world import ENV, World, request_id, spec

SECOND = request_id(2)
RUN = RunSpec(
    command=("serve",),
    volumes=(VolumeMount(name="data", mount_path="/data"), VolumeMount(name="journal", mount_path="/journal")),
)


class Stateful(World):
    """Every commit is checked: never two replicas of the environment that may run at once."""

    def publish(self, kind: Any, key: Any, record: Any) -> int:
        sequence = super().publish(kind, key, record)
        if kind in (subjects.ASSIGNMENT, subjects.INSTANCE) and not self.waived:
            maybe = []
            for replica in self.state.replicas_of.get(("environment", *ENV), ()):
                instance = self.state.tables[subjects.INSTANCE].get(replica)
                if instance is None or instance.record.state not in ("failed", "stopped"):  # type: ignore[union-attr]
                    maybe.append(replica)
            assert len(maybe) <= 1, f"two may run: {maybe}"
        return sequence

    waived = False

    def pins(self) -> dict[str, str]:
        return {
            key[3]: version.record.node  # type: ignore[union-attr]
            for key, version in self.state.tables[subjects.VOLUME_STATUS].items()
        }

    def live_long(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            self.cooperate()
            self.advance(16)
        self.cooperate()


@pytest.fixture
def world() -> Stateful:
    world = Stateful()
    world.nodes(3)
    world.environment(1)
    world.release(1, stateful=True, run=RUN)
    world.deploy(1)
    world.live_long()
    assert world.active().version == "1"
    return world


def node_of(world: Stateful) -> str:
    ((node, _),) = world.replicas()
    return node


def test_the_first_deployment_pins_all_volumes_to_the_node_it_lands_on(world: Stateful) -> None:
    """W20: two volumes of one service on different nodes."""
    assert world.pins() == {"data": node_of(world), "journal": node_of(world)}
    (record,) = world.replicas().values()
    status = world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus)
    assert (status.volume_epoch, status.holder) == (record.volume_epoch, next(iter(world.replicas()))[1])
    assert record.volume_epoch > 0


def test_the_pin_passes_every_filter() -> None:
    world = Stateful()
    world.node("n1", memory=100)
    world.node("n2", region="us")
    world.node("n3", region="eu")
    world.environment(1)
    world.release(1, stateful=True, run=RUN, **spec(constraints={"region": "eu"}))
    world.deploy(1)
    world.live_long()
    assert set(world.pins().values()) == {"n3"}


def test_a_new_release_stops_the_old_one_and_starts_when_it_is_seen_to_have_stopped(world: Stateful) -> None:
    pin, epoch = node_of(world), world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus).volume_epoch
    world.release(2, stateful=True, run=RUN)
    world.deploy(2)
    world.settle()
    assert world.deployment(SECOND).phase == "stopping_old"
    assert any(name.startswith("deploy_maintenance") for name in world.notices())
    world.live_long()
    assert world.deployment(SECOND).phase == "succeeded"
    assert node_of(world) == pin
    assert world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus).volume_epoch > epoch
    assert not any(name.startswith("deploy_maintenance") for name in world.notices())


def test_a_release_that_fails_after_the_stop_leaves_the_old_one_serving_again(world: Stateful) -> None:
    world.release(2, stateful=True, run=RUN)
    world.deploy(2)
    world.settle()
    for _ in range(3):
        world.route()
        world.agents_stop()
        world.advance(16)
    ((key, _),) = world.replicas(release=2).items()
    world.report(key, "failed", exit_code=1)
    world.settle()
    assert world.deployment(SECOND).phase == "failed"
    world.live_long()
    assert world.active().version == "1"
    assert len(world.replicas("run", release=1)) == 1


def test_the_old_one_never_confirms_and_the_deployment_ends_by_its_deadline(world: Stateful) -> None:
    world.release(2, stateful=True, run=RUN)
    world.deploy(2)
    world.advance(601)
    assert world.deployment(SECOND).phase == "failed"
    assert "stopping_old" in world.deployment(SECOND).error


def test_a_replica_that_failed_is_started_again_where_its_volumes_are(world: Stateful) -> None:
    pin = node_of(world)
    ((key, _),) = world.replicas().items()
    world.report(key, "failed", exit_code=1)
    world.live_long()
    assert node_of(world) == pin
    assert key not in world.replicas()


def test_it_waits_for_a_node_that_is_down_and_goes_on_when_it_is_back(world: Stateful) -> None:
    pin = node_of(world)
    before = list(world.replicas())
    world.silenced = {pin}
    world.advance(100)
    assert list(world.replicas()) == before
    assert world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus).state == "node_lost"
    assert f"volume_node_lost/{'/'.join(ENV)}" in world.notices()
    world.silenced = set()
    world.advance(5)
    assert world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus).state == "active"
    assert list(world.replicas()) == before


def test_volumes_are_active_again_when_their_node_is_registered_again_though_nothing_may_run_there(
    world: Stateful,
) -> None:
    pin = node_of(world)
    world.publish(subjects.NODE_CONTROL, (pin,), NodeControl(drain=True))
    world.publish(subjects.NODE, (pin,), None)
    world.settle()
    assert world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus).state == "node_lost"
    world.node(pin)
    world.settle()
    assert world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus).state == "active"
    assert not world.replicas()


def test_only_an_operator_who_declares_the_node_lost_moves_it_without_its_confirmation(world: Stateful) -> None:
    pin = node_of(world)
    world.silenced = {pin}
    world.advance(100)
    world.publish(subjects.VOLUME, (*ENV, "data"), Volume(node="n3" if pin != "n3" else "n2"))
    world.settle()
    assert [node for node, _ in world.replicas()] == [pin], "nobody has confirmed"
    world.waived = True
    world.publish(subjects.VOLUME, (*ENV, "data"), Volume(node="n3" if pin != "n3" else "n2", lost_node=pin))
    world.live_long()
    assert pin not in [node for node, _ in world.replicas("run")]
    assert set(world.pins().values()) == {"n3" if pin != "n3" else "n2"}


def test_a_volume_moves_after_the_old_node_has_confirmed_the_stop(world: Stateful) -> None:
    target = next(name for name in ("n1", "n2", "n3") if name != node_of(world))
    world.publish(subjects.VOLUME, (*ENV, "data"), Volume(node=target))
    world.settle()
    assert world.replicas("run") == {}
    world.live_long()
    assert node_of(world) == target
    assert set(world.pins().values()) == {target}


def test_w23_a_drain_is_held_by_a_stateful_replica_and_says_so(world: Stateful) -> None:
    pin = node_of(world)
    world.publish(subjects.NODE_CONTROL, (pin,), NodeControl(drain=True))
    world.advance(60)
    assert node_of(world) == pin
    assert world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus).state == "active"
    assert f"drain_held/{'/'.join(ENV)}" in world.notices()
    assert world.status(pin).drain == "draining"
    world.publish(subjects.NODE_CONTROL, (pin,), NodeControl(drain=True, stop_stateful=True))
    world.live_long()
    assert world.replicas("run") == {}
    assert world.status(pin).drain == "drained"
    assert world.decision().reasons["pending"]["missing"] == 1
    world.publish(subjects.NODE_CONTROL, (pin,), NodeControl())
    world.live_long()
    assert node_of(world) == pin


def test_a_notice_that_ends_does_not_hold_the_start(world: Stateful) -> None:
    pin = node_of(world)
    world.publish(subjects.NODE_CONTROL, (pin,), NodeControl(drain=True))
    world.settle()
    assert f"drain_held/{'/'.join(ENV)}" in world.notices()
    ((key, _),) = world.replicas().items()
    world.report(key, "failed", exit_code=1)
    world.publish(subjects.NODE_CONTROL, (pin,), NodeControl())
    world.settle()
    assert len(world.replicas("run")) == 1
    assert f"drain_held/{'/'.join(ENV)}" not in world.notices()


def test_an_unhealthy_stateful_replica_is_stopped_before_another_starts(world: Stateful) -> None:
    ((key, _),) = world.replicas().items()
    world.report(key, "unhealthy", healthy_since=world.now)
    world.advance(61)
    assert key in world.replicas("drain")
    assert world.replicas("run") == {}
    world.live_long()
    assert len(world.replicas("run")) == 1


def test_epochs_only_rise(world: Stateful) -> None:
    seen = []
    for _ in range(4):
        ((key, record),) = world.replicas().items()
        seen.append(record.volume_epoch)
        world.report(key, "failed", exit_code=1)
        world.live_long()
    assert seen == sorted(set(seen))
