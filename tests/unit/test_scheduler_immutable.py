"""A release is immutable: another body of one that a deployment has frozen starts nothing."""

from services.scheduler.immutable import contradicted, refuses
from services.scheduler.state import SERVICE
from shared import subjects
from shared.model.deployment import Deployment
from shared.model.environment import ServiceSpec
from shared.model.release import Release
from shared.model.run import RunSpec
from shared.model.service import DecisionRecord
from shared.service import Version
from tests.unit.scheduler_world import ENV, World

RELEASE_1 = (*ENV, "1")
OTHER = Release(image="exec:other", service=ServiceSpec(run=RunSpec(command=("mine",))))


def test_another_body_of_a_release_is_refused_once_a_deployment_has_frozen_it() -> None:
    world = World()
    world.serving()
    change = Version(subjects.RELEASE, RELEASE_1, world.sequence + 1, OTHER, world.now)
    assert "deployment 00000000000000000000000001 has frozen another body" in refuses(world.state, change)
    assert refuses(world.state, change._replace(record=None)) == ""
    assert refuses(world.state, change._replace(key=(*ENV, "2"))) == ""
    same = world.get(subjects.RELEASE, RELEASE_1, Release)
    assert refuses(world.state, change._replace(record=same)) == ""


def test_a_release_that_nothing_was_deployed_from_may_be_corrected() -> None:
    world = World()
    world.environment()
    world.release(1)
    change = Version(subjects.RELEASE, RELEASE_1, world.sequence + 1, OTHER, world.now)
    assert refuses(world.state, change) == ""


def test_what_a_load_brings_starts_no_replica_until_the_frozen_body_is_back() -> None:
    world = World()
    world.serving(replicas=2, nodes=3)
    good = world.get(subjects.RELEASE, RELEASE_1, Release)
    world.publish(subjects.RELEASE, RELEASE_1, OTHER)
    assert [version.key for version, _ in contradicted(world.state)] == [RELEASE_1]
    (victim, *_) = world.replicas()
    world.report(victim, "failed")
    world.settle()
    assert victim in world.replicas(), "its place is kept, and nothing of the other body runs"
    decision = world.get(subjects.DECISION, (SERVICE, "environment", *ENV), DecisionRecord)
    assert decision.reasons["held"] == "release 1 was changed after it was deployed: nothing is started"
    world.publish(subjects.RELEASE, RELEASE_1, good)
    assert list(contradicted(world.state)) == []
    world.settle()
    assert {item.run.command for item in world.replicas().values()} == {("serve",)}
    assert len(world.replicas()) == 2


def test_the_order_in_which_release_and_deployment_are_loaded_does_not_matter() -> None:
    world = World()
    world.serving()
    id = world.deploy(1, id=7)
    world.cooperate()
    record = world.get(subjects.DEPLOYMENT, (*ENV, id), Deployment)
    release_first, deployment_first = World(), World()
    release_first.publish(subjects.DEPLOY, (*ENV, id), None)
    deployment_first.publish(subjects.DEPLOY, (*ENV, id), None)
    frozen = record.replaced(requested_at_sequence=1)
    release_first.publish(subjects.RELEASE, RELEASE_1, OTHER)
    release_first.publish(subjects.DEPLOYMENT, (*ENV, id), frozen)
    deployment_first.publish(subjects.DEPLOYMENT, (*ENV, id), frozen)
    deployment_first.publish(subjects.RELEASE, RELEASE_1, OTHER)
    assert release_first.state.contradicted == deployment_first.state.contradicted == {RELEASE_1}
