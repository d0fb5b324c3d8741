"""What clients ask of the builder: what is wrong with a request is said, and changes nothing."""

from typing import Any

import pytest

from shared.errors import SteerError
from shared.service import Change
from tests.unit.builder_world import POOL, World

ID = f"{7:026d}"


def lease(world: World, owner: str = "a") -> Any:
    return world.command("lease", pool=POOL, owner=owner, wait_seconds=60, id=ID)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such pool": ({"pool": "other"}, "pool: other does not exist"),
    "a pool that is no name": ({"pool": "Big Pool"}, "pool, id: <pool>"),
    "a pool that is no text": ({"pool": 7}, "pool, id: texts"),
    "no owner": ({"owner": None}, "owner: None"),
    "an owner with a space": ({"owner": "a b"}, "owner: 'a b'"),
    "an empty owner": ({"owner": ""}, "owner: ''"),
    "a negative wait": ({"wait_seconds": -1}, "wait_seconds: a number from 0"),
    "a wait that is no number": ({"wait_seconds": "1"}, "wait_seconds: a number"),
    "a wait that is a truth": ({"wait_seconds": True}, "wait_seconds: a number"),
    "an endless wait": ({"wait_seconds": 1e9}, "wait_seconds: a number"),
    "an id that is no ULID": ({"id": "me"}, "pool, id: <id>"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_request_that_is_wrong_is_refused_with_the_reason(case: str) -> None:
    fields, reason = BAD[case]
    world = World()
    world.worker(0)
    sequence = world.sequence
    with pytest.raises(SteerError) as caught:
        world.command("lease", **{"pool": POOL, "owner": "a", "wait_seconds": 1, "id": ID, **fields})
    assert str(caught.value).startswith(reason)
    assert world.sequence == sequence


@pytest.mark.parametrize("worker", [None, 7, "w-0", "default/w-0/x", "default/W 0"])
def test_a_worker_that_is_no_name_is_refused(worker: Any) -> None:
    with pytest.raises(SteerError, match=r"^worker: "):
        World().command("renew", worker=worker, token="t")


def test_an_id_belongs_to_whoever_used_it_first() -> None:
    world = World()
    lease(world, "a")
    with pytest.raises(SteerError, match=f"id: {ID} is a request of a, not of b"):
        lease(world, "b")


def test_what_a_command_stores_is_one_record() -> None:
    world = World()
    before = len(world.log)
    lease(world)
    stored = [Change(v.kind, v.key, v.record).subject for v in world.log[before:]]
    assert stored[0] == f"steer.lease_request.default.{ID}"
