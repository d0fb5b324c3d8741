"""Properties of routes, over random histories of a small world with many collisions."""

import random
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.routes import versions
from services.routes.decide import decide, work
from services.routes.state import State, fold
from shared import route_digest, subjects
from shared.codec import decode, encode
from shared.model.assignment import Assignment, Desired, Instance, InstanceState
from shared.model.deployment import ActiveRelease
from shared.model.environment import RateLimit
from shared.model.node import NodeStatus
from shared.model.run import PortSpec
from shared.service import Change, Plan, Version
from shared.subjects import ENVIRONMENT, ROUTE_KINDS, Key
from tests.routing import World, spec

ENVS: tuple[Key, ...] = (("shop", "web", "production"), ("shop", "api", "production"), ("blog", "web", "production"))
NODES = ("n1", "n2")
HOSTS = ("a.example.com", "b.example.com", "*.example.com", "web-production.example.net")
PACING = {"dirty", "dirty_environments", "marks", "changed_at", "quiet", "tombstones"}
"""What only says when to look."""

SPECS = (
    spec(),
    spec((PortSpec(name="db", container_port=5432, protocol="tcp", public_l4_port=5432),)),
    spec(
        (PortSpec(name="http", container_port=80), PortSpec(name="db", container_port=1, public_l4_port=5432)),
        scale_to_zero=True,
        rate_limit=RateLimit(requests_per_second=1),
    ),
)

Step = tuple[str, int, int, int, bool]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["environment", "release", "promote", "domain", "assign", "report", "node", "status", "publish", "restart"]
        ),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=60,
)


def apply(world: World, step: Step) -> None:  # noqa: PLR0912 - one case per kind of step
    what, a, b, c, gone = step
    env, node = ENVS[a % 3], NODES[b % 2]
    assignment = f"r{a % 3}-{c % 4}"
    world.wait(c * 7)
    match what:
        case "environment" if gone:
            world.delete(ENVIRONMENT, *env)
        case "environment":
            world.environment(env)
        case "release":
            world.release(str(b % 2 + 1), SPECS[c % 3], env)
        case "promote":
            world.promote(str(b % 3) if b % 3 else "", f"d{c % 2}" if gone else "", c, env)
        case "domain" if gone:
            world.delete(subjects.DOMAIN, env[0], f"d{b % 3}")
        case "domain":
            target = "/".join(env[1:])
            world.domain_of(f"d{b % 3}", HOSTS[c % 4], target, project=env[0], prefix="/api" if b % 2 else "")
        case "assign" if gone:
            world.delete(subjects.ASSIGNMENT, node, assignment)
        case "assign":
            desired: tuple[Desired, ...] = ("run", "run", "drain", "stop")
            world.assign(
                assignment, node, release=str(b % 2 + 1), deployment=f"d{c % 2}", desired=desired[c % 4], env=env
            )
        case "report" if gone:
            world.delete(subjects.INSTANCE, node, assignment)
        case "report":
            states: tuple[InstanceState, ...] = ("healthy", "healthy", "healthy", "unhealthy")
            world.report(assignment, node, states[b % 4], {"http": 30000 + c, "db": 31000 + c})
        case "node" if gone:
            world.delete(subjects.NODE, node)
        case "node":
            world.node(node, f"10.0.0.{c}")
        case "status":
            world.node_status(node, "down" if gone else "alive")
        case "publish":
            world.publish()
        case "restart":
            world.state = world.loaded()


def history(steps: list[Step]) -> World:
    world = World()
    for step in steps:
        apply(world, step)
    return world


def facts(state: State) -> dict[str, object]:
    return {each.name: getattr(state, each.name) for each in fields(state) if each.name not in PACING}


def changes(plan: Plan) -> list[Change]:
    return [change for decision in plan.decisions for change in decision.changes]


@given(STEPS)
def test_deciding_again_after_a_plan_was_folded_is_empty(steps: list[Step]) -> None:
    world = history(steps)
    world.publish()
    assert decide(world.state, world.now) == Plan()
    assert list(work(world.state)) == []
    world.state = world.loaded()
    assert world.publish() == []


@given(STEPS)
def test_a_full_look_decides_what_the_incremental_one_does(steps: list[Step]) -> None:
    world = history(steps)
    full = world.loaded()
    world.wait(1000)
    assert changes(decide(world.state, world.now)) == changes(decide(full, world.now))


@given(STEPS, st.randoms(use_true_random=False))
def test_the_order_of_different_subjects_does_not_matter(steps: list[Step], order: random.Random) -> None:
    world = history(steps)
    world.publish()
    shuffled = list(world.last().values()) + order.sample(world.versions, min(len(world.versions), 20))
    order.shuffle(shuffled)
    state = State(world.domain)
    for version in shuffled:
        fold(state, version)
    assert facts(state) == facts(world.loaded())
    assert changes(decide(state, world.now)) == []


@given(STEPS)
def test_the_state_that_followed_is_the_state_that_was_loaded(steps: list[Step]) -> None:
    world = history(steps)
    world.publish()
    followed, loaded = facts(world.state), facts(world.loaded())
    followed.pop("routed_version"), loaded.pop("routed_version")  # a maximum over all that was ever seen
    assert followed == loaded


@given(STEPS)
def test_every_path_of_versions_gives_the_records_and_the_digest_of_the_whole(steps: list[Step]) -> None:
    world = history([*steps, ("publish", 0, 0, 0, False)])
    bodies: dict[str, bytes] = {}
    pending: list[Version] = []
    for version in world.versions:
        pending.append(version)
        if version.kind != subjects.ROUTE_MANIFEST:
            continue
        for each in pending:
            if each.kind in ROUTE_KINDS:
                bodies.pop(each.kind.subject(*each.key), None)
                if each.record is not None:
                    bodies[each.kind.subject(*each.key)] = encode(each.record)
        pending = []
        total = sum(route_digest.term(subject, body) for subject, body in bodies.items()) % 2**256
        assert getattr(version.record, "digest", None) == route_digest.text(total)
    whole = {
        kind.subject(*key): encode(version.record)
        for (kind, key), version in world.last().items()
        if kind in ROUTE_KINDS and version.record is not None
    }
    assert bodies == whole


@given(STEPS)
def test_folding_twice_changes_nothing(steps: list[Step]) -> None:
    world = history(steps)
    before = facts(world.loaded())
    state = world.loaded()
    for version in world.versions:
        fold(state, version)
    assert facts(state) == before


@given(STEPS)
def test_routed_never_claims_what_the_manifest_does_not_close(steps: list[Step]) -> None:
    world = history(steps)
    world.publish()
    assert not versions.unclosed(world.state)
    assert all(routed.version <= versions.number(world.state) for routed in world.state.routed.values())


@given(STEPS)
def test_what_is_written_reads_back_as_the_same_bytes(steps: list[Step]) -> None:
    world = history(steps)
    world.publish()
    for (kind, key), version in world.last().items():
        if kind in ROUTE_KINDS and version.record is not None:
            assert encode(decode(kind, key, encode(version.record))) == encode(version.record)


def _expected_endpoints(world: World, env: Key) -> set[str]:
    """The definition, written down once more without indexes."""
    records = {place: version.record for place, version in world.last().items()}
    active = records.get((subjects.ACTIVE, env))
    found = set()
    for (_, key), assignment in records.items():
        if not isinstance(assignment, Assignment) or not isinstance(active, ActiveRelease):
            continue
        instance = records.get((subjects.INSTANCE, key))
        status = records.get((subjects.NODE_STATUS, key[:1]))
        if (
            assignment.workload.key == "/".join(env)
            and assignment.release == active.version
            and active.deployment in {"", assignment.deployment}
            and assignment.desired == "run"
            and isinstance(instance, Instance)
            and instance.state == "healthy"
            and not (isinstance(status, NodeStatus) and status.state == "down")
            and records.get((subjects.NODE, key[:1])) is not None
        ):
            found.add(key[1])
    return found


@settings(max_examples=200)
@given(STEPS)
def test_an_internal_service_lists_exactly_the_endpoints_of_the_definition(steps: list[Step]) -> None:
    world = history(steps)
    world.publish()
    for env in ENVS:
        internal = world.internal(env)
        for port in internal.ports if internal else ():
            assert {endpoint.assignment for endpoint in port.endpoints} == _expected_endpoints(world, env)


@pytest.mark.parametrize("count", [1, 50])
def test_the_work_of_one_change_follows_the_change_not_the_number_of_hosts(count: int) -> None:
    world = World()
    world.node("n1")
    for number in range(count):
        env = ("shop", f"app{number}", "production")
        world.environment(env)
        world.release("1", env=env)
        world.promote("1", env=env)
    world.publish()
    world.wait(1000)
    world.replica("app0-1", env=("shop", "app0", "production"))
    assert len(list(work(world.state))) == 3
    assert len(changes(world.look())) == 3
