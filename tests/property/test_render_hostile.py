"""Nothing in a record breaks out of the syntax of a configuration, whatever it contains."""

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from services.routes.render import FORMATS, Options, Rendered, Renderer
from services.routes.render import FORMS as PROXIES
from services.routes.render.haproxy import _rate_limit
from services.routes.render.plan import records
from shared.model.domain import BasicAuth, Middleware
from shared.model.environment import RateLimit
from shared.model.route import (
    Endpoint,
    FunctionRoute,
    HostRoutes,
    HTTPRoute,
    InternalPort,
    InternalService,
    L4Route,
)
from tests.table import BCRYPT, Table, route, table

TRICKS = [
    "a\nglobal\n",
    "x } y",
    '"',
    "'",
    "\\",
    "\\x0a",
    "{env.HOME}",
    "{{",
    "}",
    "$HOME",
    "# x",
    "a b",
    "\x00",
    "\ud800",
]
FORMS = [
    "10.0.0.1:80",
    "h-1.x:65535",
    "[::1]:8",
    "a.:99999",
    "/a",
    "/a%20b/c",
    "/%2e%2e/x",
    "/{a}$b",
    "b.example",
    "c.d.e",
]
HOSTILE = st.one_of(st.sampled_from(TRICKS), st.sampled_from(FORMS), st.text(max_size=12))
DIRECTIVES = re.compile(
    r"(global|hard-stop-after|stats|description|defaults|mode|timeout|balance|retries|option|retry-on|"
    r"default-server|frontend|bind|http-request|use_backend|acl|backend|listen|server|userlist|user|stick-table|"
    r"compression|cookie|tcp-request|#)"
)
PLACEHOLDERS = {"{http.request.host}", "{http.request.uri}"}


@st.composite
def routes(draw: st.DrawFn, hostname: str) -> HTTPRoute:
    middleware = Middleware.model_construct(
        redirect_https=draw(st.booleans()),
        compress=draw(st.booleans()),
        basic_auth=draw(
            st.none()
            | st.builds(
                BasicAuth.model_construct, username=HOSTILE, password_hash=st.sampled_from([BCRYPT, BCRYPT, "x y"])
            )
        ),
        ip_allowlist=tuple(draw(st.lists(st.one_of(HOSTILE, st.ip_addresses().map(str)), max_size=3))),
        max_body_bytes=draw(st.integers(0, 10**12)),
        sticky_sessions=draw(st.booleans()),
    )
    limit = RateLimit.model_construct(requests_per_second=draw(st.floats(0, 10**9)), burst=draw(st.integers(0, 10**6)))
    return HTTPRoute.model_construct(
        hostname=hostname,
        path_prefix=draw(st.one_of(st.just(""), HOSTILE)),
        environment=draw(HOSTILE),
        middleware=draw(st.sampled_from([None, middleware])),
        endpoints=tuple(draw(st.lists(ENDPOINTS, max_size=3))),
        cold=draw(st.booleans()),
        via_activator=draw(st.booleans()),
        rate_limit=draw(st.sampled_from([None, limit])),
    )


NAMES = st.one_of(st.sampled_from(["a.example.com", "*.example.com"]), HOSTILE)
ENDPOINTS = st.builds(Endpoint.model_construct, assignment=HOSTILE, node=HOSTILE, address=HOSTILE)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    hosts = {
        name: HostRoutes.model_construct(hostname=name, routes=tuple(draw(st.lists(routes(name), max_size=3))))
        for name in draw(st.lists(NAMES, max_size=3, unique=True))
    }
    ports = {
        number: L4Route.model_construct(
            public_port=number,
            protocol=draw(st.sampled_from(["tcp", "udp"])),
            environment=draw(HOSTILE),
            endpoints=tuple(draw(st.lists(ENDPOINTS, max_size=3))),
        )
        for number in draw(st.sets(st.integers(-1, 70_000), max_size=2))
    }
    return Table(hosts, ports, draw(SERVICES), draw(FUNCTIONS))


SERVICES = st.dictionaries(
    HOSTILE,
    st.builds(
        InternalService.model_construct,
        fqdn=st.one_of(st.just("web.production.shop.internal."), HOSTILE),
        environment=HOSTILE,
        ports=st.lists(
            st.builds(
                InternalPort.model_construct,
                name=st.one_of(st.just("http"), HOSTILE),
                protocol=st.sampled_from(["tcp", "udp"]),
                endpoints=st.lists(ENDPOINTS, max_size=2).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
    ),
    max_size=2,
)
FUNCTIONS = st.dictionaries(
    HOSTILE,
    st.builds(
        FunctionRoute.model_construct,
        namespace=st.one_of(st.just("shop"), HOSTILE),
        function=st.one_of(st.just("greet"), HOSTILE),
        endpoints=st.lists(ENDPOINTS, max_size=2).map(tuple),
    ),
    max_size=2,
)
FULL = Options(https=":443", certificates="/c", internal=":7000", activators=("10.9.9.9:9",), slots="/s", mark="m")
OPTIONS = st.sampled_from([Options(), FULL])


def strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, each in value.items():
                yield key
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)


def assert_said_on_one_line(rendered: Rendered) -> None:
    assert all(text.isprintable() and text.isascii() for text in rendered.left_out)


@settings(max_examples=100, deadline=None)
@given(tables(), OPTIONS)
def test_every_line_of_haproxy_is_a_directive_of_ours_and_what_is_left_out_is_said_on_one(
    table: Table, options: Options
) -> None:
    rendered = FORMATS["haproxy"](table, options)
    body = rendered.body
    assert_said_on_one_line(rendered)
    sections = {"global": 1, "defaults": 1, "frontend": 1 + bool(options.internal)}
    for line in body.split("\n"):
        assert line.isascii() and (line.isprintable() or not line)
        words = line.split()
        assert not words or DIRECTIVES.fullmatch(words[0]), line
        if words and words[0] in sections:
            sections[words[0]] -= 1
        assert words[:1] != ["user"] or len(words) == 4, line
        if words[:1] == ["server"]:
            name, address, cookie = r"(b_)?(s\d+(_[\w.-]+)?|a\d+)", r"[\w.\[\]:-]+:\d+", r"( cookie [a-z0-9]+)?"
            assert re.fullmatch(rf"server {name} {address}(?(1) backup no-check){cookie}", line.strip()), line
        if words[:1] not in (["http-request"], ["use_backend"], ["#"]):
            assert not set(line) & set("{}\"'`$"), line
    assert not any(sections.values())


@settings(max_examples=100, deadline=None)
@given(tables(), OPTIONS)
def test_caddy_gets_json_in_which_no_text_of_a_record_is_replaced(table: Table, options: Options) -> None:
    rendered = FORMATS["caddy"](table, options)
    configuration = json.loads(rendered.body)
    assert_said_on_one_line(rendered)
    assert set(configuration) == {"admin", "apps"}
    assert set(configuration["apps"]) == {"http", "tls"} if options.https else {"http"}
    for text in strings(configuration):
        if not text.startswith("^/"):  # an expression, in which nothing is replaced
            found = set(re.findall(r"(?<!\\)\{[^}]*\}?", text))
            assert found <= PLACEHOLDERS or re.fullmatch(r"\{file\./s/[ri][0-9a-f]{16}-[0-9a-f]{16}-\d+/\d+\}", text)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(PROXIES)), st.lists(tables(), min_size=2, max_size=3), OPTIONS)
def test_a_table_that_came_about_change_by_change_is_rendered_as_the_whole(
    name: str, path: list[Table], options: Options
) -> None:
    renderer = Renderer(PROXIES[name], options)
    before: dict[str, BaseModel] = {}
    for each in path:
        after = dict(records(each))
        touched = {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        renderer.change(touched.items())
        one, whole = renderer.rendered(options.mark), FORMATS[name](each, options)
        assert (one.body, one.mark, one.slots) == (whole.body, whole.mark, whole.slots)
        assert (one.left_out, one.environments) == (whole.left_out, whole.environments)
        before = after


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(min_size=1, max_size=20), st.sampled_from(["a b", "{env.HOME}", "} x", "a#b", "'", "a\\"])))
def test_a_username_stays_one_word_and_one_text(username: str) -> None:
    auth = BasicAuth.model_construct(username=username, password_hash=BCRYPT)
    asked = Middleware.model_construct(basic_auth=auth)
    routed = table([route("a.example.com", "", "10.0.0.1:80").model_copy(update={"middleware": asked})])
    for line in FORMATS["haproxy"](routed, Options()).body.splitlines():
        assert not line.strip().startswith("user ") or (len(line.split()) == 4 and not set(line) & set("{}\"'#$"))
    for text in strings(json.loads(FORMATS["caddy"](routed, Options()).body)):
        assert not re.search(r"(?<!\\)\{", text)


def test_the_smallest_rate_is_a_window_of_a_day() -> None:
    limit = RateLimit(requests_per_second=2.2250738585e-313)
    assert "http_req_rate(86400000ms)" in "\n".join(_rate_limit(limit))
