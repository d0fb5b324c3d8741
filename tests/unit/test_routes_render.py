"""What is rendered from a route table, without a proxy."""

import json
import random
from typing import Any

import pytest

from services.routes.render import FORMATS, FORMS, Options, Renderer
from services.routes.render.haproxy import sticky_value, word
from services.routes.render.plan import Site
from services.routes.render.renderer import Whole
from shared.model.domain import BasicAuth, Middleware
from shared.model.environment import RateLimit
from shared.model.route import L4Route
from tests.table import BCRYPT, endpoints, route, table

SHOP = "shop.example.com"
OPTIONS = Options(activators=("127.0.0.1:9000",), mark="steer-7")


def caddy(*routes: Any, options: Options = OPTIONS) -> Any:
    return json.loads(FORMATS["caddy"](table(routes), options).body)


def haproxy(*routes: Any, options: Options = OPTIONS) -> list[str]:
    return [line.strip() for line in FORMATS["haproxy"](table(routes), options).body.splitlines()]


def dialled(configuration: Any) -> list[str]:
    """Every address that Caddy would forward to."""
    match configuration:
        case {"dial": str(address)}:
            return [address]
        case dict():
            return [address for value in configuration.values() for address in dialled(value)]
        case list():
            return [address for value in configuration for address in dialled(value)]
    return []


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_table_gives_the_same_bytes_in_whatever_order_it_was_built(name: str) -> None:
    routes = [route(f"h{number}.example.com", prefix, "10.0.0.1:80") for number in range(20) for prefix in ("", "/a")]
    bodies = set()
    for seed in range(5):
        random.Random(seed).shuffle(routes)
        bodies.add(FORMATS[name](table(routes), OPTIONS).body)
    assert len(bodies) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_cold_host_goes_to_the_activator_and_so_does_one_with_a_limit(name: str) -> None:
    routes = [
        route("cold.example.com", "", cold=True),
        route("full.example.com", "", "10.0.0.7:80", via_activator=True, max_concurrency=3),
    ]
    body = FORMATS[name](table(routes), OPTIONS).body
    assert body.count("127.0.0.1:9000") == 2 + 2 * (name == "haproxy") and "10.0.0.7" not in body


@pytest.mark.parametrize("name", FORMATS)
def test_a_cold_host_without_an_activator_is_answered_and_said(name: str) -> None:
    rendered = FORMATS[name](table([route(SHOP, cold=True)]), Options())
    assert rendered.left_out == (f"{SHOP}: wants an activator, and none is known",)
    assert "503" in rendered.body


@pytest.mark.parametrize("name", FORMATS)
def test_the_load_of_hosts_that_go_through_an_activator_is_not_the_proxys_to_report(name: str) -> None:
    held = route("cold.example.com", "", via_activator=True, environment="shop/cold/production")
    rendered = FORMATS[name](table([held, route(SHOP, "", "10.0.0.1:80")]), OPTIONS)
    assert set(rendered.environments.values()) == {"shop/web/production"}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.1:0", "a b:80", "x:80\nserver y z:1", "x:99999", "{env.X}:80"])
def test_what_is_no_address_is_left_out_and_said(name: str, address: str) -> None:
    rendered = FORMATS[name](table([route(SHOP, "", address, "10.0.0.2:80")]), Options())
    assert len(rendered.left_out) == 1 and "is not an address" in rendered.left_out[0]
    assert address not in rendered.body.replace("\n", "") and "10.0.0.2:80" in rendered.body


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("prefix", ["/a/..", "/%2e%2e/a", "/a%2fb", "/a\nb", "/a//b", "/%00", 'a"', "/ä"])
def test_what_is_no_prefix_is_left_out_and_said(name: str, prefix: str) -> None:
    rendered = FORMATS[name](table([route(SHOP, prefix, "10.0.0.2:80")]), Options())
    assert rendered.left_out[0].endswith("not a path prefix") and "10.0.0.2" not in rendered.body


@pytest.mark.parametrize("name", FORMATS)
def test_an_allowlist_that_makes_no_sense_lets_nobody_in(name: str) -> None:
    asked = Middleware(ip_allowlist=("everyone",))
    body = FORMATS[name](table([route(SHOP, "", "10.0.0.1:80", middleware=asked)]), Options()).body
    assert "403" in body and "everyone" not in body
    assert "remote_ip" not in body and "!allowed" not in body


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("auth", [("me", "plain"), ("a:b", BCRYPT), ("a\nb", BCRYPT)])
def test_a_user_that_makes_no_sense_lets_nobody_in(name: str, auth: tuple[str, str]) -> None:
    asked = Middleware(basic_auth=BasicAuth(username=auth[0], password_hash=auth[1]))
    rendered = FORMATS[name](table([route(SHOP, "", "10.0.0.1:80", middleware=asked)]), Options())
    assert len(rendered.left_out) == 1 and rendered.left_out[0].endswith("nobody is let in")
    assert "http_auth(" in rendered.body or '"http_basic"' in rendered.body


def test_haproxy_looks_at_whole_segments_and_the_longest_prefix_has_the_last_say() -> None:
    lines = haproxy(
        route(SHOP, "/a", "10.0.0.1:80"), route(SHOP, "/a/b", "10.0.0.2:80"), route(SHOP, "", "10.0.0.3:80")
    )
    chosen = [line for line in lines if line.startswith("http-request set-var(txn.route)")]
    assert [line.partition("{ var(txn.path)")[2] for line in chosen] == [
        "", " -m str -- /a }", " -m beg -- /a/ }", " -m str -- /a/b }", " -m beg -- /a/b/ }"
    ]  # fmt: skip


def test_haproxy_tries_another_server_when_a_connection_fails() -> None:
    lines = haproxy()
    assert "option redispatch 1" in lines and "retries 3" in lines
    assert any(line.startswith("retry-on conn-failure") for line in lines)


def test_caddy_tries_another_endpoint_when_a_connection_fails() -> None:
    body = json.dumps(caddy(route(SHOP, "", "10.0.0.1:80", "10.0.0.2:80")))
    assert '"try_duration": "5s"' in body and '"fail_duration": "2s"' in body


def test_middleware_comes_in_the_order_of_the_reference() -> None:
    asked = Middleware(
        redirect_https=True,
        compress=True,
        basic_auth=BasicAuth(username="me", password_hash=BCRYPT),
        ip_allowlist=("10.0.0.0/8",),
        max_body_bytes=9,
        sticky_sessions=True,
    )
    options = Options(https=":443", certificates="/etc/certificates")
    limited = route(SHOP, "", "10.0.0.1:80", middleware=asked, rate_limit=RateLimit(requests_per_second=5, burst=10))
    lines = haproxy(limited, options=options)
    signs = [
        "code 308",
        "deny_status 403",
        "sc_http_req_rate(0) gt 10",
        "http_auth(",
        "gt 9 }",
        "compression algo",
        "cookie",
    ]
    found = [next(index for index, line in enumerate(lines) if sign in line) for sign in signs]
    assert found == sorted(found) and any("http_req_rate(2000ms)" in line for line in lines)

    http, https = (caddy(limited, options=options)["apps"]["http"]["servers"][name] for name in ("http", "https"))
    plain = http["routes"][0]["handle"][0]["routes"][0]["handle"]
    assert [(each["handler"], each["status_code"]) for each in plain] == [("static_response", 308)]
    handlers = [each["handler"] for each in https["routes"][0]["handle"][0]["routes"][0]["handle"]]
    assert handlers == ["subroute", "authentication", "request_body", "encode", "reverse_proxy"]


def test_a_route_without_middleware_redirects_where_there_is_https_and_only_there() -> None:
    with_https = caddy(route(SHOP, "", "10.0.0.1:80"), options=Options(https=":443"))
    assert "308" in json.dumps(with_https["apps"]["http"]["servers"]["http"])
    assert "308" not in json.dumps(caddy(route(SHOP, "", "10.0.0.1:80")))


def test_exact_hosts_come_before_wildcards() -> None:
    routes = [route("*.example.com", "", "10.0.0.1:80"), route(SHOP, "", "10.0.0.2:80")]
    assert dialled(caddy(*routes)) == ["10.0.0.2:80", "10.0.0.1:80"]
    lines = haproxy(*routes)
    assert lines.index("acl known_wild var(txn.wild) -m str -- *.example.com") < lines.index(
        f"acl known_host var(txn.host) -m str -- {SHOP}"
    ), "the last that matches has the say"


def test_a_public_port_is_a_listener_of_haproxy_and_more_than_caddy_can_do() -> None:
    port = L4Route(
        public_port=5432, protocol="tcp", environment="shop/db/production", endpoints=endpoints("10.0.0.1:1")
    )
    udp = L4Route(public_port=53, protocol="udp", environment="shop/dns/production")
    rendered = FORMATS["haproxy"](table([], port, udp), Options())
    assert "listen l4_5432\n    bind *:5432\n    mode tcp\n    server s0_web-0 10.0.0.1:1\n" in rendered.body
    assert "    server b_s0_web-0 10.0.0.1:1 backup no-check\n" in rendered.body
    assert rendered.left_out == ("port 53: udp is not forwarded",)
    assert rendered.environments == {"l4_5432": "shop/db/production"}
    assert "port 5432: L4 routes need a module of Caddy" in FORMATS["caddy"](table([], port), Options()).left_out


@pytest.mark.parametrize("name", FORMATS)
def test_a_port_of_the_proxy_itself_is_nobody_elses(name: str) -> None:
    port = L4Route(public_port=80, protocol="tcp", environment="shop/db/production", endpoints=endpoints("10.0.0.1:1"))
    rendered = FORMATS[name](table([], port), Options())
    assert rendered.left_out == ("port 80: taken by the proxy itself, or no port",)


@pytest.mark.parametrize(("assignment", "value"), [("a1", "7t47mv"), ("as1", "1uprfg4")])
def test_the_cookie_of_a_sticky_session_names_its_replica(assignment: str, value: str) -> None:
    assert sticky_value(assignment) == value


def test_a_word_of_haproxy_is_one_word_whatever_it_contains() -> None:
    assert word('a b"\n$') == "a\\x20b\\x22\\x0a\\x24"


def test_caddy_puts_nothing_in_the_place_of_braces_of_a_username() -> None:
    asked = Middleware(basic_auth=BasicAuth(username="{env.HOME}", password_hash=BCRYPT))
    body = FORMATS["caddy"](table([route(SHOP, "", "10.0.0.1:80", middleware=asked)]), Options()).body
    assert '"\\\\{env.HOME\\\\}"' in body and '"{env' not in body


@pytest.mark.parametrize("name", FORMS)
def test_of_a_record_that_stays_nothing_is_made_again_and_the_whole_only_when_it_is_asked_for(name: str) -> None:
    written: list[str] = []

    def site(each: Site, options: Options) -> tuple[str, ...]:
        written.append(each.hostname)
        return FORMS[name].site(each, options)

    def whole(everything: Whole, options: Options) -> str:
        written.append("the whole")
        return FORMS[name].whole(everything, options)

    renderer = Renderer(FORMS[name]._replace(site=site, whole=whole), OPTIONS)
    hosts = table([route("a.example.com", "", "10.0.0.1:80"), route("b.example.com", "", "10.0.0.1:80")]).hosts
    renderer.change(hosts.items())
    first = renderer.rendered()
    assert written == ["a.example.com", "b.example.com"]
    renderer.change(table([route("b.example.com", "", "10.0.0.2:80")]).hosts.items())
    second = renderer.rendered()
    assert written[2:] == ["b.example.com"]
    assert "10.0.0.2" in second.body and "10.0.0.2" not in first.body and written[3:] == ["the whole"] * 2
