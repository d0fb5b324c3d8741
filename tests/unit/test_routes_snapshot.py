"""The whole snapshot, pure: what is in it, when it is written, and how it is cut into messages."""

from services.routes.decide import decide
from services.routes.snapshot import MOST_SECONDS, QUIET_SECONDS, due_at, pack, pieces, take, unpack
from services.routes.state import State
from shared import codec, subjects
from shared.model.route import RouteSnapshot
from shared.model.run import PortSpec
from tests.routing import World, serving, spec


def snapshot(state: State) -> RouteSnapshot | None:
    """As it is read, and canonical: written once more it is the same bytes."""
    taken = take(state)
    if taken is None:
        return None
    body = b"".join(pieces(taken))
    whole = codec.validate(RouteSnapshot, subjects.ROUTE_SNAPSHOT, body)
    assert codec.encode(whole) == body
    return whole


def test_it_holds_every_route_in_order() -> None:
    world = serving()
    ports = (PortSpec(name="http", container_port=80, public_l4_port=9000), PortSpec(name="b", container_port=1))
    world.release("2", spec(ports))
    world.promote("2")
    world.domain_of("api", "shop.example.com", prefix="/api")
    world.domain_of("first", "a.example.com")
    world.publish()
    whole = snapshot(world.state)
    assert whole is not None
    assert [(route.hostname, route.path_prefix) for route in whole.http_routes] == [
        ("a.example.com", ""),
        ("shop.example.com", "/api"),
        ("shop.example.com", ""),
        ("web-production.example.net", ""),
    ]
    assert whole.cert_hosts == ("a.example.com", "shop.example.com", "web-production.example.net")
    assert [route.public_port for route in whole.l4_routes] == [9000]
    assert [service.fqdn for service in whole.internal_services] == ["web.production.shop.internal."]
    assert (whole.version, whole.digest) == (world.manifest.version, world.manifest.digest)


def test_there_is_none_while_a_version_is_open() -> None:
    world = World("example.net")
    assert snapshot(world.state) is None
    world = serving()
    world.report("web-1", state="unhealthy")
    plan = decide(world.state, world.now)
    for decision in plan.decisions:
        for change in decision.changes:
            if change.kind != subjects.ROUTE_MANIFEST:
                world.put(change.kind, change.key, change.record)
    assert snapshot(world.state) is None
    world.publish()
    assert snapshot(world.state) is not None


def test_it_is_written_when_changes_have_ended_and_now_and_then_while_they_go_on() -> None:
    assert due_at(first=100.0, last=100.0) == 100.0 + QUIET_SECONDS
    assert due_at(first=100.0, last=105.0) == 105.0 + QUIET_SECONDS
    assert due_at(first=100.0, last=129.9) == 100.0 + MOST_SECONDS


def test_what_fits_is_one_message_and_what_does_not_comes_in_chunks_with_the_head_last() -> None:
    whole = RouteSnapshot(version=3, digest="d" * 64, cert_hosts=tuple(f"h{n * 7919}.example.com" for n in range(500)))
    body = codec.encode(whole)
    ((subject, body),) = pack(whole.version, whole.digest, body)
    assert subject == subjects.ROUTE_SNAPSHOT
    assert unpack(codec.validate(RouteSnapshot, subject, body), []) == whole

    *chunks, (subject, body) = pack(whole.version, whole.digest, body, limit_bytes=1000)
    assert [name for name, _ in chunks] == [f"steer.snapshot.routes.{n}" for n in range(1, len(chunks) + 1)]
    head = codec.validate(RouteSnapshot, subject, body)
    assert (head.version, head.digest, head.chunks, head.cert_hosts) == (3, "d" * 64, len(chunks), ())
    assert all(len(chunk) <= 1000 for _, chunk in chunks)
    assert unpack(head, [chunk for _, chunk in chunks]) == whole
