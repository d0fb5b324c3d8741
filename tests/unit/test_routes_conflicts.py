"""Two who claim one thing: the incumbent keeps it, else the lower subject; the other is told, until it ends."""

import pytest

from services.routes.written import disputed, notice_key
from shared import subjects
from shared.model.run import PortSpec
from shared.service import MAX_BATCH
from tests.routing import World, serving, spec

OTHER = ("shop", "api", "production")


def with_another_environment() -> World:
    world = serving()
    world.environment(OTHER)
    world.release("1", env=OTHER)
    world.promote("1", env=OTHER)
    world.publish()
    return world


def environment_of(world: World, hostname: str) -> str:
    host = world.host(hostname)
    assert host is not None
    return host.routes[0].environment


def test_the_incumbent_keeps_a_host_though_the_newcomer_has_the_lower_subject() -> None:
    world = with_another_environment()
    world.domain_of("aaa", "shop.example.com", "api/production")
    world.publish()
    assert environment_of(world, "shop.example.com") == "shop/web/production"
    assert list(world.notices()) == ["domain shop/aaa does not get shop.example.com: shop/main has it"]


def test_without_an_incumbent_the_lower_subject_gets_it() -> None:
    world = with_another_environment()
    world.domain_of("zzz", "new.example.com", "web/production")
    world.domain_of("aaa", "new.example.com", "api/production")
    world.publish()
    assert environment_of(world, "new.example.com") == "shop/api/production"


def test_the_other_gets_it_when_the_incumbent_goes_and_the_notice_is_deleted() -> None:
    world = with_another_environment()
    world.domain_of("aaa", "shop.example.com", "api/production")
    world.publish()
    decision = ("routes", "host", "com", "example", "shop")
    world.delete(subjects.DOMAIN, "shop", "main")
    plans = world.publish()
    assert environment_of(world, "shop.example.com") == "shop/api/production"
    assert list(world.notices()) == []
    gone = [change for plan in plans for each in plan.decisions for change in each.changes if change.record is None]
    assert (subjects.DECISION, decision) in [(change.kind, change.key) for change in gone]


def test_an_incumbent_that_leads_elsewhere_now_stays_the_incumbent() -> None:
    world = with_another_environment()
    world.domain_of("aaa", "shop.example.com", "api/production")
    world.publish()
    world.domain_of("main", "shop.example.com", "api/production", middleware=None)
    world.publish()
    host = world.host("shop.example.com")
    assert host and host.routes[0].domain == "shop/main"


def test_different_prefixes_of_one_host_are_no_conflict() -> None:
    world = with_another_environment()
    world.domain_of("aaa", "shop.example.com", "api/production", prefix="/api")
    world.publish()
    assert list(world.notices()) == []


def test_a_domain_does_not_take_an_implicit_host_away() -> None:
    world = with_another_environment()
    world.domain_of("aaa", "web-production.example.net", "api/production")
    world.publish()
    assert environment_of(world, "web-production.example.net") == "shop/web/production"


def test_two_environments_with_the_same_implicit_host_are_told_apart_by_who_was_first() -> None:
    world = serving()
    world.environment(("another", "web", "production"))
    world.publish()
    assert environment_of(world, "web-production.example.net") == "shop/web/production"
    (message,) = world.notices()
    assert message.startswith("environment another/web/production does not get web-production.example.net")


def test_a_public_port_stays_with_the_environment_that_has_it() -> None:
    world = with_another_environment()
    ports = (PortSpec(name="db", container_port=1, protocol="tcp", public_l4_port=5432),)
    world.release("2", spec(ports))
    world.promote("2")
    world.publish()
    world.release("2", spec(ports), env=OTHER)
    world.promote("2", env=OTHER)
    world.publish()
    route = world.l4(5432)
    assert route and route.environment == "shop/web/production"
    assert list(world.notices()) == [
        "environment shop/api/production does not get public port 5432: shop/web/production has it"
    ]
    world.promote("1")
    world.publish()
    route = world.l4(5432)
    assert route and route.environment == "shop/api/production"
    assert list(world.notices()) == []


def test_a_notice_is_raised_once_and_keeps_its_time() -> None:
    world = with_another_environment()
    world.domain_of("aaa", "shop.example.com", "api/production")
    world.publish()
    raised = [version for version in world.versions if version.kind == subjects.NOTICE]
    world.wait(1000)
    world.report("web-1", ports={"http": 30002})
    world.publish()
    world.state = world.loaded()
    assert world.publish() == []
    assert [version for version in world.versions if version.kind == subjects.NOTICE] == raised


def test_a_conflict_that_ended_while_nobody_looked_is_cleared_after_a_load() -> None:
    world = with_another_environment()
    world.domain_of("aaa", "shop.example.com", "api/production")
    world.publish()
    world.delete(subjects.DOMAIN, "shop", "aaa")
    world.state = world.loaded()
    world.publish()
    assert list(world.notices()) == []


def test_more_losers_than_fit_in_a_batch_are_told_in_several() -> None:
    world = with_another_environment()
    for number in range(MAX_BATCH + 100):
        world.domain_of(f"d{number}", "shop.example.com", "api/production")
    plans = world.publish()
    assert len(plans) == 2
    assert len(list(world.notices())) == MAX_BATCH + 100


@pytest.mark.parametrize(
    ("item", "loser"),
    [
        ((subjects.ROUTE_HOST.name, ("com", "example", "_wildcard")), ("shop", "main")),
        ((subjects.ROUTE_HOST.name, ("localhost",)), ("shop", "main")),
        ((subjects.ROUTE_HOST.name, ("net", "example", "web-production")), ("shop", "web", "production")),
        ((subjects.ROUTE_L4.name, ("5432",)), ("shop", "web", "production")),
    ],
)
def test_a_notice_leads_back_to_what_it_speaks_of(item: tuple[str, subjects.Key], loser: subjects.Key) -> None:
    key = notice_key(item, loser)
    subjects.NOTICE.check(key)
    assert disputed(key) == item


def test_notices_of_other_services_are_none_of_ours() -> None:
    assert disputed(("scheduler", "host_conflict", "com", "shop", "main")) is None
    assert disputed(("routes", "something_else", "a")) is None
