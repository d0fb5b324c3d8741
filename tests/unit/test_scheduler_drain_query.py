"""The dry run of a drain: what would move, what would not, and that nothing is changed by asking."""

from typing import Any

import pytest

from services.scheduler.drain_query import drain_query
from shared import subjects
from shared.errors import SteerError
from shared.model.environment import Placement
from shared.model.node import NodeControl
from shared.model.run import RunSpec, VolumeMount
from tests.unit.scheduler_world import ENV, World, spec

DATA = RunSpec(command=("serve",), volumes=(VolumeMount(name="data", mount_path="/data"),))


def ask(world: World, node: str, **request: Any) -> dict[str, Any]:
    before = world.sequence, dict(world.state.cluster.replicas(f"environment/{'/'.join(ENV)}"))
    answer = dict(drain_query(world.state, {"node": node, **request}, world.now))
    assert (world.sequence, dict(world.state.cluster.replicas(f"environment/{'/'.join(ENV)}"))) == before
    return answer


def test_each_replica_has_a_place_to_go_to_and_the_drain_then_does_as_it_said() -> None:
    world = World()
    world.serving(replicas=3, nodes=3)
    (on_n1,) = [name for node, name in world.replicas() if node == "n1"]
    answer = ask(world, "n1")
    assert [row["assignment"] for row in answer["moves"]] == [on_n1]
    (to,) = [row["to"] for row in answer["moves"]]
    world.publish(subjects.NODE_CONTROL, ("n1",), NodeControl(drain=True))
    world.cooperate()
    world.advance(20)
    world.cooperate()
    assert sorted(node for node, _ in world.replicas()) == sorted(["n2", "n3", to])
    assert world.status("n1").drain == "drained"


def test_replicas_do_not_share_a_place_that_is_for_one() -> None:
    world = World()
    world.node("n1")
    world.environment(2)
    world.release(1, **spec(memory=512))
    world.deploy(1)
    world.cooperate()
    world.node("n2", memory=600)
    world.settle()
    answer = ask(world, "n1")
    assert [row["to"] for row in answer["moves"]] == ["n2"]
    (stuck,) = answer["stuck"]
    assert stuck["reasons"]["rejected"] == {"excluded": 1, "memory": 1}


def test_distinct_nodes_labels_and_platforms_count() -> None:
    world = World()
    world.nodes(3, region="north")
    world.environment(3)
    placement = Placement(constraints={"region": "north"}, distinct_nodes=True)
    world.release(1, placement=placement)
    world.deploy(1)
    world.cooperate()
    world.node("n4", region="south")
    world.settle()
    (stuck,) = ask(world, "n1")["stuck"]
    assert stuck["reasons"]["rejected"] == {"excluded": 3, "labels": 1}


def test_a_stateful_replica_holds_the_drain_or_stops_where_its_volumes_are() -> None:
    world = World()
    world.serving(replicas=1, nodes=2, run=DATA, stateful=True)
    ((node, name),) = world.replicas()
    (held,) = ask(world, node)["held"]
    assert held["assignment"] == name and "stop_stateful" in held["reason"]
    (stops,) = ask(world, node, stop_stateful=True)["stops"]
    assert f"its volumes are on {node}" in stops["reason"]
    other = "n2" if node == "n1" else "n1"
    assert not any(ask(world, other)[kind] for kind in ("moves", "stops", "held", "stuck", "ending"))


def test_what_ends_already_is_told_apart() -> None:
    world = World()
    world.serving(replicas=2, nodes=2)
    key = sorted(world.replicas())[0]
    world.publish(subjects.NODE_CONTROL, (key[0],), NodeControl(drain=True))
    world.settle()
    world.all_healthy()
    world.settle()
    assert [row["reason"] for row in ask(world, key[0])["ending"]] == ["drain already"]


@pytest.mark.parametrize(
    "request_", [{"node": "n9"}, {"node": 1}, {}, {"node": "n1.x"}, {"node": "n1", "stop_stateful": 1}]
)
def test_a_bad_question_is_refused_with_the_reason(request_: dict[str, Any]) -> None:
    world = World()
    world.nodes(1)
    world.settle()
    with pytest.raises(SteerError, match=r"^(node|stop_stateful): "):
        drain_query(world.state, request_, world.now)
