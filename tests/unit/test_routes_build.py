"""What is routed where: hosts, endpoints, ports, policy. The reference's tests, under their names, come first."""

import pytest

from services.routes.snapshot import pieces, take
from shared import subjects
from shared.model.assignment import WorkloadRef
from shared.model.domain import Middleware
from shared.model.environment import RateLimit
from shared.model.run import PortSpec
from tests.routing import ENV, World, serving, spec


class TestRoutesBuild:
    def test_an_environment_gets_its_domain_and_its_implicit_host_with_address_and_generation(self) -> None:
        world = World("example.net")
        world.environment()
        world.node("n1", "10.90.0.7")
        world.release("1")
        world.replica("web-1")
        world.promote("1", generation=4)
        world.domain_of("main", "shop.example.com", middleware=Middleware(compress=True))
        world.publish()

        custom, implicit = world.host("shop.example.com"), world.host("web-production.example.net")
        assert custom and implicit
        for host in (custom, implicit):
            assert world.addresses(host.hostname) == ["10.90.0.7:30001"]
        assert custom.routes[0].route_generation == implicit.routes[0].route_generation == 4
        assert custom.routes[0].middleware == Middleware(compress=True)
        assert implicit.routes[0].middleware is None
        assert (custom.routes[0].domain, implicit.routes[0].domain) == ("shop/main", "")
        whole = take(world.state)
        assert whole and b'"cert_hosts":["shop.example.com","web-production.example.net"]' in b"".join(pieces(whole))


class TestRoutesRateLimitOnBothRouteKinds:
    def test_the_rate_limit_is_on_both_kinds_of_host(self) -> None:
        world = serving()
        limit = RateLimit(requests_per_second=10, burst=20)
        world.release("2", spec(rate_limit=limit))
        world.promote("2")
        world.publish()
        for name in ("shop.example.com", "web-production.example.net"):
            host = world.host(name)
            assert host and host.routes[0].rate_limit == limit


class TestRoutesPromoteSwapsEndpoints:
    def test_a_promotion_swaps_the_endpoints(self) -> None:
        world = serving()
        world.node("n2")
        world.release("2")
        world.replica("web-2", "n2", release="2")
        assert world.publish() == []
        world.promote("2")
        world.publish()
        assert world.addresses("shop.example.com") == ["10.0.0.2:30001"]


class TestRoutesUnhealthyDropped:
    def test_an_unhealthy_replica_is_dropped(self) -> None:
        world = serving()
        world.report("web-1", state="unhealthy")
        world.publish()
        assert world.addresses("shop.example.com") == []


class TestRoutesNodeDownDropped:
    def test_a_replica_of_a_node_that_is_down_is_dropped_and_comes_back_with_it(self) -> None:
        world = serving()
        world.node_status("n1", "down")
        world.publish()
        assert world.addresses("shop.example.com") == []
        world.node_status("n1", "alive")
        world.publish()
        assert world.addresses("shop.example.com") == ["10.0.0.1:30001"]


class TestRoutesL4AndInternal:
    def test_public_ports_and_internal_services_list_their_endpoints(self) -> None:
        world = serving()
        ports = (
            PortSpec(name="http", container_port=8080),
            PortSpec(name="db", container_port=5432, protocol="tcp", public_l4_port=15432),
            PortSpec(name="dns", container_port=53, protocol="udp", public_l4_port=5353),
        )
        world.release("2", spec(ports))
        world.assign("web-2", release="2")
        world.report("web-2", ports={"http": 31000, "db": 31001, "dns": 31002})
        world.promote("2")
        world.publish()

        db, dns, internal = world.l4(15432), world.l4(5353), world.internal()
        assert db and dns and internal
        assert (db.protocol, [endpoint.address for endpoint in db.endpoints]) == ("tcp", ["10.0.0.1:31001"])
        assert (dns.protocol, [endpoint.address for endpoint in dns.endpoints]) == ("udp", ["10.0.0.1:31002"])
        assert internal.fqdn == "web.production.shop.internal."
        assert [(port.name, port.port, port.protocol) for port in internal.ports] == [
            ("http", 8080, "tcp"), ("db", 5432, "tcp"), ("dns", 53, "udp"),
        ]  # fmt: skip
        assert [port.endpoints[0].address for port in internal.ports] == [
            "10.0.0.1:31000", "10.0.0.1:31001", "10.0.0.1:31002",
        ]  # fmt: skip

        world.promote("1")
        world.publish()
        assert world.l4(15432) is None


def test_a_new_deployment_of_the_same_release_swaps_the_endpoints_too() -> None:
    world = serving()
    world.promote("1", deployment="d1")
    world.replica("web-1", deployment="d1")
    world.publish()
    world.assign("web-2", deployment="d2")
    world.report("web-2", ports={"http": 30002})
    assert world.publish() == []
    world.promote("1", deployment="d2")
    world.publish()
    assert world.addresses("shop.example.com") == ["10.0.0.1:30002"]


def test_a_node_that_is_suspected_keeps_its_endpoints() -> None:
    world = serving()
    world.node_status("n1", "suspect")
    assert world.publish() == []


def test_endpoints_are_sorted_by_assignment_whatever_their_order_of_arrival() -> None:
    world = serving()
    for name in ("web-9", "web-5", "web-7"):
        world.replica(name)
    world.publish()
    host = world.host("shop.example.com")
    assert host is not None
    assert [endpoint.assignment for endpoint in host.routes[0].endpoints] == ["web-1", "web-5", "web-7", "web-9"]


@pytest.mark.parametrize("desired", ["drain", "stop"])
def test_a_replica_that_is_to_go_is_no_endpoint_though_healthy(desired: str) -> None:
    world = serving()
    world.assign("web-1", desired=desired)  # type: ignore[arg-type]
    world.publish()
    assert world.addresses("shop.example.com") == []


def test_a_replica_without_the_port_bound_is_no_endpoint() -> None:
    world = serving()
    world.report("web-1", ports={"admin": 30009})
    world.publish()
    assert world.addresses("shop.example.com") == []


def test_a_replica_of_a_pool_is_no_endpoint_of_an_environment() -> None:
    world = serving()
    version = world.assign("web-2")
    assert version.record is not None
    pool = WorkloadRef(kind="pool", key="shop/python/main/read")
    world.put(version.kind, version.key, version.record.model_copy(update={"workload": pool}))
    world.report("web-2")
    world.publish()
    assert len(world.addresses("shop.example.com")) == 1


def test_a_replaced_replica_in_the_same_slot_brings_no_traffic_to_the_old_instance() -> None:
    world = serving()
    world.delete(subjects.ASSIGNMENT, "n1", "web-1")
    world.assign("web-2")
    world.publish()
    assert world.addresses("shop.example.com") == []  # though the old instance still says healthy


def test_a_domain_names_the_port_else_the_first_http_port_serves() -> None:
    world = serving()
    ports = (PortSpec(name="db", container_port=1, protocol="tcp"), PortSpec(name="web", container_port=2))
    world.release("2", spec(ports))
    world.assign("web-2", release="2")
    world.report("web-2", ports={"db": 1001, "web": 1002})
    world.domain_of("db", "db.example.com", port="db")
    world.promote("2")
    world.publish()
    assert world.addresses("shop.example.com") == ["10.0.0.1:1002"]
    assert world.addresses("db.example.com") == ["10.0.0.1:1001"]


def test_policy_comes_from_the_release_that_serves_not_from_the_edited_template() -> None:
    world = serving()
    world.release("2", spec(scale_to_zero=True, max_concurrency=5))
    assert world.publish() == []
    world.promote("2")
    world.publish()
    host = world.host("shop.example.com")
    assert host is not None
    route = host.routes[0]
    assert (route.cold, route.via_activator, route.max_concurrency) == (True, True, 5)


def test_a_route_is_cold_only_while_it_has_no_endpoint() -> None:
    world = serving()
    world.release("2", spec(scale_to_zero=True))
    world.replica("web-2", release="2")
    world.promote("2")
    world.publish()
    host = world.host("shop.example.com")
    assert host and not host.routes[0].cold and host.routes[0].via_activator


def test_routes_of_one_host_stand_longest_prefix_first() -> None:
    world = serving()
    world.domain_of("api", "shop.example.com", prefix="/api")
    world.domain_of("v2", "shop.example.com", prefix="/api/v2")
    world.publish()
    host = world.host("shop.example.com")
    assert host and [route.path_prefix for route in host.routes] == ["/api/v2", "/api", ""]


def test_a_host_without_endpoints_is_published_and_its_deletion_too() -> None:
    world = World("")
    world.environment()
    world.domain_of("main", "*.example.com")
    world.publish()
    host = world.host("*.example.com")
    assert host and host.routes[0].endpoints == ()
    world.delete(subjects.DOMAIN, "shop", "main")
    world.publish()
    assert world.host("*.example.com") is None
    assert world.manifest.hosts == 0


def test_a_domain_that_moves_to_another_hostname_leaves_the_old_one() -> None:
    world = serving()
    world.domain_of("main", "new.example.com")
    world.publish()
    assert world.host("shop.example.com") is None
    assert world.addresses("new.example.com") == ["10.0.0.1:30001"]


def test_deleting_the_environment_ends_its_routes_but_a_record_that_is_missing_does_not() -> None:
    world = World("example.net")
    world.node("n1")
    world.release("1")
    world.replica("web-1")
    world.promote("1")
    world.publish()
    assert world.addresses("web-production.example.net") == ["10.0.0.1:30001"]  # held: no record is no tombstone
    world.delete(subjects.ENVIRONMENT, *ENV)
    world.publish()
    assert world.host("web-production.example.net") is None
    assert world.internal() is None


def test_an_implicit_host_whose_label_would_be_too_long_is_left_out() -> None:
    world = World("example.net")
    env = ("shop", "a" * 40, "b" * 40)
    world.environment(env)
    world.publish()
    assert world.manifest.hosts == 0
    assert world.internal(env) is not None


def test_another_cluster_domain_replaces_the_implicit_hosts_after_a_restart() -> None:
    world = serving()
    world.domain = "other.net"
    world.state = world.loaded()
    world.publish()
    assert world.host("web-production.example.net") is None
    assert world.addresses("web-production.other.net") == ["10.0.0.1:30001"]


def test_an_ipv6_address_is_put_in_brackets() -> None:
    world = serving()
    world.node("n1", "fd00::7")
    world.publish()
    assert world.addresses("shop.example.com") == ["[fd00::7]:30001"]
