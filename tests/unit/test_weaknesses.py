"""Faults of the behavioural reference, by their numbers, each shown not to happen here.

Those with tests elsewhere carry their number in the name: W4, W6 to W8, W10, W11, W14, W17, W18, W23, W25 to W29, and in
`test_route_table` W30 (`/apix`). W9 (jobs) and W22 (networks) have no counterpart; W15 and W19 are the runtime's, whose
services follow one log and never wait on an edge.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from services.agent.driver import DriverError
from services.agent.journal import Entry
from services.agent.reconcile import Wanted, reconcile
from services.agent.reconcile import World as Node
from services.agent.volumes import Volumes
from services.scheduler.decide import decide
from services.scheduler.snapshots import next_slot
from services.scheduler.telemetry import observe
from shared import subjects
from shared.model.assignment import Instance
from shared.model.build import BuildStatus
from shared.model.deployment import Scale
from shared.model.environment import Environment, Placement, Replicas
from shared.model.live import Demand, ProxySample
from shared.model.release import Release
from shared.model.run import RunSpec, VolumeMount
from shared.model.volume import SnapshotPolicy, VolumeStatus
from shared.service import Sample
from shared.subjects import Owner
from tests.unit.scheduler_world import ENV, EPOCH, World, request_id, spec

NAME = "/".join(ENV)
SECOND = request_id(2)
DATA = RunSpec(command=("serve",), volumes=(VolumeMount(name="data", mount_path="/data"),))


def stateful(nodes: int = 3, run: RunSpec = DATA, **service: object) -> World:
    world = World()
    world.serving(replicas=1, nodes=nodes, run=run, stateful=True, **service)
    return world


def test_w1_a_running_stateful_replica_causes_no_records() -> None:
    """There the lease of a volume was rewritten on every pass, and each write caused the next pass."""
    world = stateful()
    world.advance(30)
    before = world.sequence
    world.advance(600)
    assert world.sequence == before


def test_w2_a_report_that_says_nothing_new_causes_no_records() -> None:
    """There every agent reported everything every five seconds, and each report caused passes and pushes everywhere."""
    world = World()
    world.serving(replicas=3)
    for key, version in list(world.state.tables[subjects.INSTANCE].items()):
        assert isinstance(version.record, Instance)
        before = world.publish(subjects.INSTANCE, key, version.record)
        world.settle()
        assert world.sequence == before


def test_w3_a_change_of_one_replica_reaches_only_the_agent_of_its_node() -> None:
    """There every change was pushed as a full set to every node."""
    world = World()
    world.serving(replicas=3)
    before = len(world.log)
    key = sorted(world.replicas())[0]
    world.report(key, "failed", exit_code=1)
    world.settle()
    written = {change.key for _, change in world.log[before:] if change.kind is subjects.ASSIGNMENT}
    assert len(written) == 2 and key in written, "the one that ends and the one that starts"


def test_w5_a_promotion_that_was_not_stored_is_not_believed() -> None:
    """There a failed write was logged and taken for done: the old replicas were stopped without a promotion."""
    world = World()
    world.serving(replicas=2)
    world.release(2)
    world.deploy(2)
    world.settle()
    world.all_healthy()
    refused = decide(world.state, world.now)  # decided, and lost on its way to the log
    assert any(change.kind is subjects.ACTIVE for decision in refused.decisions for change in decision.changes)
    assert decide(world.state, world.now) == refused, "it is decided again, as nothing of it is in the log"
    assert world.active().version == "1" and len(world.replicas("run", release=1)) == 2


def test_w12_the_last_sample_of_a_proxy_that_is_gone_does_not_count_for_ever() -> None:
    """There the in-flight requests of a dead node kept an environment from being cooled."""
    world = World()
    world.nodes(2)
    world.environment(1, 5, idle_timeout_seconds=60)
    world.release(1, scale_to_zero=True, max_concurrency=10)
    world.deploy(1)
    world.cooperate()
    world.advance(20)
    dead = ProxySample(demand={NAME: Demand(inflight=7, last_request_at=world.now)})
    observe(world.state, Sample("proxy", "dead", dead), world.now)
    world.proxies = {"edge": None}
    world.advance(200)
    assert world.get(subjects.SCALE, ENV, Scale).effective_replicas == 0


def test_w12_what_a_proxy_that_is_gone_carried_is_scaled_down_though_nobody_else_reports_a_change() -> None:
    world = World()
    world.nodes(2)
    world.environment(1, 5)
    world.release(1, max_concurrency=10)
    world.deploy(1)
    world.cooperate()
    world.advance(20)
    observe(world.state, Sample("proxy", "dead", ProxySample(demand={NAME: Demand(inflight=35)})), world.now)
    world.settle()
    assert world.get(subjects.SCALE, ENV, Scale).effective_replicas == 4
    world.proxies = {"edge": None}
    world.advance(300)
    assert world.get(subjects.SCALE, ENV, Scale).effective_replicas == 1


def test_w13_demand_comes_from_whoever_carries_traffic_whatever_node_it_is_on() -> None:
    """There only proxies beside an agent reported, and only HTTP traffic."""
    world = World()
    world.nodes(1)
    world.environment(1, 5)
    world.release(1, max_concurrency=10)
    world.deploy(1)
    world.cooperate()
    world.advance(20)
    for proxy, inflight in {"edge": 5, "internal": 12, "l4": 8}.items():
        observe(world.state, Sample("proxy", proxy, ProxySample(demand={NAME: Demand(inflight=inflight)})), world.now)
    world.settle()
    assert world.get(subjects.SCALE, ENV, Scale).effective_replicas == 3


def test_w16_a_deployment_goes_on_in_the_same_moment_in_which_its_build_ends() -> None:
    """There the end of a build was noticed by a tick, up to fifteen seconds later, and an orphaned build never."""
    world = World()
    world.serving(replicas=1)
    build = request_id(9)
    world.publish(subjects.RELEASE, (*ENV, "2"), Release(build=build))
    world.deploy(2)
    world.settle()
    assert world.deployment(SECOND).phase == "building" and world.deployment(SECOND).deadline is not None
    done = BuildStatus(state="succeeded", pool="main", owner="shop", image="exec:v2", queued_at=world.now)
    world.publish(subjects.BUILD_STATUS, (*ENV[:2], build), done)
    world.settle()
    assert world.replicas("run", release=2)


def test_w20_all_volumes_of_a_service_are_on_one_node_that_passes_every_filter() -> None:
    """There each volume was pinned to the least used node by itself, whatever the constraints."""
    world = World()
    for number, region in enumerate(("south", "north", "south"), start=1):
        world.node(f"n{number}", region=region)
    world.environment(1)
    two = RunSpec(
        command=("serve",), volumes=tuple(VolumeMount(name=name, mount_path=f"/{name}") for name in ("data", "wal"))
    )
    world.release(1, **spec(constraints={"region": "north"}), run=two, stateful=True)
    world.deploy(1)
    world.cooperate()
    pins = {v.record.node for v in world.state.tables[subjects.VOLUME_STATUS].values()}  # type: ignore[union-attr]
    assert pins == {"n2"} == {node for node, _ in world.replicas()}


def test_w21_a_start_is_refused_by_the_agent_when_a_later_one_was_admitted(tmp_path: Path) -> None:
    """There a lease was looked at only at the start, came late, and its expiry was never checked."""
    world = stateful()
    (first,) = world.replicas().values()
    status = world.get(subjects.VOLUME_STATUS, (*ENV, "data"), VolumeStatus)
    assert status.volume_epoch == first.volume_epoch > 0
    volumes = Volumes(tmp_path)
    paths = volumes.paths(NAME, DATA)
    volumes.admit("later", paths, status.volume_epoch + 1)
    with pytest.raises(DriverError, match="is over"):
        volumes.admit(status.holder, paths, status.volume_epoch)


def test_w24_the_scheduler_never_writes_a_record_of_a_user_but_to_delete_it() -> None:
    """There a decision put the whole environment back and could overwrite what a user had changed meanwhile."""
    world = World()
    world.serving(replicas=2)
    mine = len(world.log)
    world.publish(subjects.ENVIRONMENT, ENV, Environment(replicas=Replicas(min=3), drain_window_seconds=1))
    world.release(2)
    world.deploy(2)
    theirs = len(world.log)
    world.cooperate()
    world.advance(60)
    world.cooperate()
    written = [change for _, change in world.log[:mine] + world.log[theirs:] if change.kind.owner is Owner.USERS]
    by_users = [change for _, change in world.log[:theirs] if change.kind.owner is Owner.USERS]
    assert all(change in by_users for change in written)


def test_w31_distinct_nodes_is_hard_and_the_reason_named_is_the_true_one() -> None:
    """There was no hard anti-affinity, and the error could blame the labels for what the pin forbade."""
    world = World()
    world.nodes(2)
    world.environment(3)
    world.release(1, placement=Placement(distinct_nodes=True))
    world.deploy(1)
    world.settle()
    assert len({node for node, _ in world.replicas()}) == len(world.replicas()) == 2
    pending = world.decision("deployment", (*ENV, request_id(1))).reasons["pending"]
    assert (pending["missing"] == 1 and pending["rejected"] == {"excluded": 2}) or "distinct_nodes" in pending[
        "rejected"
    ]


def test_w32_a_schedule_is_read_in_the_zone_that_it_names() -> None:
    """There one kind of schedule used the host's local time, the other one UTC."""
    rome = SnapshotPolicy(schedule="30 2 * * *", timezone="Europe/Rome")
    slot = next_slot(rome, EPOCH)
    assert slot is not None and (slot.hour, slot.minute) == (1, 30)


@pytest.mark.parametrize("reported", [None, "pending", "healthy", "stopped"])
def test_w33_a_stop_is_answered_also_where_nothing_runs_and_whenever_it_is_asked(reported: str | None) -> None:
    """There a lost report of a stop was never made again, and a drain or a stateful deployment waited for ever."""
    states = {} if reported is None else {"a-1": reported}
    world = Node(wanted={"a-1": Wanted("stop")}, reported=states)  # type: ignore[arg-type]
    (action,) = reconcile(world, EPOCH).actions
    assert action.kind == "answer"
    assert action.state == "stopped" or reported == "stopped"


def test_w34_a_change_of_health_keeps_what_an_earlier_report_said() -> None:
    """There a change of health carried the state only, and ports and messages were blank until the next poll."""
    entry = Entry(
        assignment="a-1",
        sequence=1,
        workload=NAME,
        run=RunSpec(),
        config_hash="x",
        ports={"http": 8080},
        pid=7,
        state="healthy",
        since=EPOCH,
        healthy_since=EPOCH,
    )
    sick = entry.model_copy(update={"state": "unhealthy", "since": EPOCH + timedelta(seconds=9)})
    assert sick.instance(2).ports == {"http": 8080} and sick.instance(2).healthy_since == EPOCH


def test_w35_every_deployment_knows_what_it_replaces_and_a_stateful_one_stops_it_first() -> None:
    """There deployments of one origin named no previous release: a second stateful replica stood beside the first."""
    world = stateful()
    old = set(world.replicas())
    world.release(2, run=DATA, stateful=True)
    world.deploy(2)
    world.settle()
    assert world.deployment(SECOND).previous == "1"
    for _ in range(30):
        there = list(world.replicas("run") | world.replicas("drain") | world.replicas("stop"))
        alive = [key for key in there if not _ended(world, key)]
        assert len(alive) <= 1
        world.advance(3)
        world.all_healthy()
        world.route()
        world.agents_stop()
        world.settle()
    assert world.active().version == "2" and not old & set(world.replicas())


def _ended(world: World, key: tuple[str, ...]) -> bool:
    instance = world.state.get(subjects.INSTANCE, key, Instance)
    return instance is not None and instance.state in ("failed", "stopped")
