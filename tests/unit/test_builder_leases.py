"""Leases of clients: the queue, tokens, renewals, and how leases end."""

from datetime import timedelta
from typing import Any

import pytest

from shared import subjects
from shared.errors import SteerError
from shared.model.build import BuildPool
from shared.model.build_worker import LeaseRequest, WorkerConditions
from tests.unit.builder_world import POOL, World, build_key

ID, OTHER = f"{7:026d}", f"{8:026d}"


def lease(world: World, owner: str = "a", wait: float = 60, request: str = ID) -> Any:
    return world.command("lease", pool=POOL, owner=owner, wait_seconds=wait, id=request)


def waits(world: World, request: str = ID) -> bool:
    return world.state.get(subjects.LEASE_REQUEST, (POOL, request), LeaseRequest) is not None


# -- PoolGet ------------------------------------------------------------------------------------------------------------


def test_pool_get_running_pod() -> None:
    world = World()
    world.worker(0)
    granted = lease(world)
    assert granted["worker"] == f"{POOL}/w-0" and granted["address"] == "tcp://w-0:1234"
    record = world.lease("w-0")
    assert (record.owner, record.token, record.leased_at) == ("a", granted["token"], world.now)
    assert record.idle_until is None and granted["expires_at"] == world.now + timedelta(seconds=30)


def test_pool_get_non_running_pod() -> None:
    world = World()
    world.worker(0, "pending")
    assert lease(world) == {}
    world.change_worker("w-0", phase="running", conditions=WorkerConditions(scheduled=True))
    assert lease(world) == {}
    world.change_worker("w-0", conditions=WorkerConditions(scheduled=True, initialized=True, containers_ready=True))
    world.worker(0)
    world.settle()
    assert lease(world)["worker"] == f"{POOL}/w-0"


def test_pool_get_lease_failure() -> None:
    """A write that is not stored has not happened: the request still waits, and is served by the next pass."""
    world = World()
    world.worker(0)
    from services.builder.decide import decide
    from services.builder.service import service

    request = {"pool": POOL, "owner": "a", "wait_seconds": 60, "id": ID}
    decision = service().commands["lease"].decide(world.state, request, world.now)
    assert decision is not None
    world.commit([decision])
    assert decide(world.state, world.now).decisions  # and the log refuses it
    assert service().commands["lease"].answer(world.state, request, world.now) is None
    assert lease(world)["worker"] == f"{POOL}/w-0"


def test_pool_get_endpoints_failure() -> None:
    """W4, W12: a worker that does not become ready blocks nobody, and fails no request: another one is taken."""
    world = World(pool=BuildPool(ready_timeout_seconds=180))
    world.worker(0, conditions=WorkerConditions(scheduled=True, initialized=True))
    assert lease(world, wait=600) == {}
    world.worker(1)
    world.settle()
    assert lease(world)["worker"] == f"{POOL}/w-1"
    world.silenced.add("w-0")
    world.advance(180)
    assert world.scale.replace == ("w-0",)


def test_pool_get_endpoints_lag() -> None:
    world = World()
    for conditions in (WorkerConditions(), WorkerConditions(scheduled=True), WorkerConditions(ready=True)):
        world.worker(0, conditions=conditions)
        assert lease(world) == {}
    world.worker(0, address="tcp://10.0.0.1:9")
    world.settle()
    assert lease(world)["address"] == "tcp://10.0.0.1:9"


def test_pool_get_scale_up() -> None:
    world = World()
    assert lease(world) == {} and world.scale.replicas == 1
    world.worker(0)
    world.settle()
    assert lease(world)["worker"] == f"{POOL}/w-0" and world.scale.replicas == 1


def test_pool_get_failed_scale_up() -> None:
    """Nobody follows the scale: leasing, releasing and leasing again of what is there works."""
    world = World()
    world.worker(0)
    first = lease(world)
    assert lease(world, "b", request=OTHER) == {} and world.scale.replicas == 2
    world.command("release", worker=first["worker"], token=first["token"])
    assert lease(world, "b", request=OTHER)["token"] != first["token"]


def test_pool_cancel_and_get() -> None:
    """There is no closed pool: a request to a builder that stopped waits in the log for the next one."""
    world = World()
    assert lease(world) == {}
    world.restart()
    world.worker(0)
    world.settle()
    assert lease(world)["worker"] == f"{POOL}/w-0"


def test_without_waiting_no_worker_is_an_answer() -> None:
    world = World()
    with pytest.raises(SteerError, match="no unleased worker was found in pool default"):
        lease(world, wait=0)
    assert not waits(world) and world.scale.replicas == 0
    world.worker(0)
    assert lease(world, wait=0)["worker"] == f"{POOL}/w-0"


# -- PoolRelease --------------------------------------------------------------------------------------------------------


def test_pool_release_success() -> None:
    world = World()
    world.worker(0, address="tcp://w-0.builds:1234")
    granted = lease(world)
    assert world.command("release", address=granted["address"], token=granted["token"])
    assert world.lease("w-0").token == "" and world.lease("w-0").last_owner == "a"
    until = world.lease("w-0").idle_until
    assert until is not None and until == world.now + timedelta(minutes=10)


@pytest.mark.parametrize("address", ["w-0:1234", "w-0", "tcp://", "", "tcp:///w-0", 7])
def test_pool_release_invalid_address(address: Any) -> None:
    world = World()
    world.worker(0)
    token = lease(world)["token"]
    with pytest.raises(SteerError, match="an absolute URI with its scheme and a host"):
        world.command("release", address=address, token=token)
    assert world.lease("w-0").token == token


def test_pool_release_missing_pod() -> None:
    world = World()
    with pytest.raises(SteerError, match=r"address tcp://w-9:1234 is not allocated"):
        world.command("release", address="tcp://w-9:1234", token="t")


@pytest.mark.parametrize("verb", ["release", "renew"])
def test_a_wrong_token_is_refused_and_changes_nothing(verb: str) -> None:
    """W5: a late release freed the lease of somebody else."""
    world = World()
    world.worker(0)
    first = lease(world)
    world.command("release", worker=first["worker"], token=first["token"])
    second = lease(world, "b", request=OTHER)
    sequence = world.sequence
    with pytest.raises(SteerError, match="token: not that of the lease"):
        world.command(verb, worker=first["worker"], token=first["token"])
    assert world.sequence == sequence and world.lease("w-0").token == second["token"]


def test_a_second_release_is_refused_and_moves_no_deadline() -> None:
    world = World()
    world.worker(0)
    granted = lease(world)
    world.command("release", worker=granted["worker"], token=granted["token"])
    before = world.lease("w-0")
    world.now += timedelta(seconds=5)
    with pytest.raises(SteerError, match="default/w-0 is not leased"):
        world.command("release", worker=granted["worker"], token=granted["token"])
    assert world.lease("w-0") == before


def test_the_worker_of_a_build_is_not_released_by_hand() -> None:
    world = World()
    world.worker(0)
    world.build(1)
    world.settle()
    with pytest.raises(SteerError, match=f"held by build shop/web/{build_key(1)[2]}: cancel the build"):
        world.command("release", worker=f"{POOL}/w-0", token=world.order("w-0").token)


# -- leases that end ----------------------------------------------------------------------------------------------------


def test_a_lease_that_is_renewed_lives_and_one_that_is_not_ends_after_its_ttl() -> None:
    """W5: there was no TTL, a dead holder kept its worker for ever."""
    world = World()
    world.worker(0)
    granted = lease(world)
    for _ in range(5):
        world.advance(20)
        world.command("renew", worker=granted["worker"], token=granted["token"])
    assert world.advance(29) == []
    assert any("the lease of a ended: nothing was heard" in outcome for outcome in world.advance(1))
    with pytest.raises(SteerError, match="is not leased"):
        world.command("renew", worker=granted["worker"], token=granted["token"])


@pytest.mark.parametrize("how", ["failed", "gone", "anew"])
def test_a_lease_of_a_worker_that_died_ends_at_once(how: str) -> None:
    """W6: a leased worker kept its slot, whatever had become of it."""
    world = World()
    world.worker(0)
    lease(world)
    world.now += timedelta(seconds=1)
    if how == "failed":
        world.change_worker("w-0", phase="failed")
    elif how == "gone":
        world.remove_worker("w-0")
    else:
        world.worker(0)
    assert any("the lease of a ended" in outcome for outcome in world.settle())


def test_a_restart_adopts_every_lease_and_gives_it_a_whole_ttl() -> None:
    world = World()
    world.worker(0)
    granted = lease(world)
    world.now += timedelta(seconds=300)  # nobody listens
    world.restart()
    assert world.settle() == []
    world.command("renew", worker=granted["worker"], token=granted["token"])
    world.advance(29)
    assert world.lease("w-0").token == granted["token"]


def test_a_requester_that_went_away_gives_its_place_up() -> None:
    """W3: a request whose caller had gone took a worker until the controller was restarted."""
    world = World()
    lease(world, wait=3600)
    world.advance(29)
    assert waits(world)
    world.advance(1)
    assert not waits(world) and world.scale.replicas == 0


def test_asking_again_keeps_the_place_and_the_deadline() -> None:
    world = World()
    lease(world, wait=100)
    first = world.get(subjects.LEASE_REQUEST, (POOL, ID), LeaseRequest)
    for _ in range(4):
        world.advance(20)
        assert lease(world, wait=100) == {}
    last = world.get(subjects.LEASE_REQUEST, (POOL, ID), LeaseRequest)
    assert (last.place, last.deadline) == (first.place, first.deadline)
    world.advance(20)
    assert not waits(world)


def test_an_answer_that_was_lost_is_given_again() -> None:
    world = World()
    world.worker(0)
    assert lease(world) == lease(world)


def test_a_lease_that_was_never_received_ends() -> None:
    world = World()
    world.worker(0)
    lease(world)
    world.advance(30)
    assert world.lease("w-0").token == ""


def test_whoever_waits_can_give_up() -> None:
    world = World()
    lease(world)
    world.command("release", pool=POOL, id=ID)
    assert not waits(world)
    with pytest.raises(SteerError, match=f"nobody waits in pool default under {ID}"):
        world.command("release", pool=POOL, id=ID)
    world.worker(0)
    lease(world)
    world.command("release", pool=POOL, id=ID)
    assert world.lease("w-0").token == ""


def test_clients_and_builds_wait_in_one_queue() -> None:
    world = World(pool=BuildPool(max_workers=1))
    world.build(1, "a")
    world.build(2, "a")
    world.settle()
    lease(world, "b")
    world.worker(0)
    world.settle()
    assert world.running() == {"w-0": "1"}
    world.report("w-0", "succeeded")
    world.settle()
    assert world.lease("w-0").owner == "b" and world.running() == {}


def test_a_worker_that_takes_no_orders_is_lent_to_clients_only() -> None:
    world = World()
    world.worker(0, takes_orders=False)
    world.worker(1)
    world.build(1)
    world.settle()
    assert world.running() == {"w-1": "1"}
    assert lease(world)["worker"] == f"{POOL}/w-0"
    world.silenced.add("w-0")
    for _ in range(10):
        world.advance(10)
        world.command("renew", worker=f"{POOL}/w-0", token=world.lease("w-0").token)
