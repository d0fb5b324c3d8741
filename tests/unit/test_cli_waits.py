"""`steer explain`: what an environment or a node stands at and waits for, made from what the scheduler wrote."""

from services.cli import waits
from services.cli.world import World as View
from shared import subjects
from shared.model.activation import Activation
from shared.model.environment import Environment, Replicas
from shared.model.node import NodeControl
from shared.model.run import RunSpec, VolumeMount
from tests.unit.scheduler_world import ENV, World, spec


def view(world: World) -> View:
    found = View()
    for table in world.state.tables.values():
        for version in table.values():
            found.take(version)
    return found


def of_environment(world: World) -> list[str]:
    return list(waits.of_environment(view(world), ENV))


def test_an_environment_that_is_too_wide_for_the_nodes_is_pending() -> None:
    world = World()
    world.serving(replicas=2, nodes=2, **spec(memory=8000))
    world.publish(subjects.ENVIRONMENT, ENV, Environment(replicas=Replicas(min=4)))
    world.settle()
    assert of_environment(world)[0] == "pending: 2 of 4 replicas have no place; nodes ruled out: memory 2"


def test_a_scale_says_its_policy_and_its_reason() -> None:
    world = World()
    world.nodes(1)
    world.environment(1, 5, idle_timeout_seconds=60)
    world.release(1, scale_to_zero=True, max_concurrency=10)
    world.deploy(1)
    world.cooperate()
    world.proxies["edge"] = None
    world.advance(200)
    assert any(text.startswith("scaled to 0 by concurrency at 00:0") for text in of_environment(world))
    world.publish(subjects.ACTIVATION, ("edge", *ENV), Activation(requested_at=world.now, parked=25))
    world.settle()
    assert any(": activated by edge, 25 waiting" in text for text in of_environment(world))


def test_a_node_that_drains_says_what_each_replica_waits_for() -> None:
    world = World()
    world.serving(replicas=2, nodes=2)
    (first,) = [name for node, name in world.replicas() if node == "n1"]
    world.publish(subjects.NODE_CONTROL, ("n1",), NodeControl(drain=True))
    world.settle()
    left, runs = list(waits.of_node(view(world), "n1"))
    assert left == "draining: 1 left"
    assert runs == f"{first} of {'/'.join(ENV)} runs until another is healthy"
    world.all_healthy()
    world.settle()
    _, drains = list(waits.of_node(view(world), "n1"))
    assert drains.startswith(f"{first} on n1 drains until the routes and the proxies have moved on, at the latest at ")
    assert not list(waits.of_node(view(world), "n2"))


def test_a_stateful_replica_that_holds_a_drain_is_named_with_the_reason() -> None:
    world = World()
    run = RunSpec(command=("serve",), volumes=(VolumeMount(name="data", mount_path="/data"),))
    world.serving(replicas=1, nodes=1, run=run, stateful=True)
    world.publish(subjects.NODE_CONTROL, ("n1",), NodeControl(drain=True))
    world.settle()
    assert "held: node n1 drains, and holds a stateful replica: stop_stateful would stop it" in of_environment(world)
    _, held = list(waits.of_node(view(world), "n1"))
    assert "stop_stateful would stop it" in held
