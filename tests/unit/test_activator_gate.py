"""The pure parts of the activator: the gate, the choice, the demand, the headers."""

from collections import Counter as Tally
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from services.activator import gate as gates
from services.activator.choice import choose
from services.activator.demand import Counter
from services.activator.gate import Gate, Pass, Refusal, Ticket
from services.activator.headers import end_to_end, to_endpoint
from services.activator.led import Led
from shared.model.route import HostRoutes, HTTPRoute
from tests.table import endpoints, route

HOST = "shop.example.com"
ENV = "shop/web/production"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Routed:
    """A gate whose one route can be exchanged."""

    def __init__(self, *addresses: str, **fields: object) -> None:
        self.now(*addresses, **fields)
        self.gate = Gate(lambda host, path: self.route if host == HOST else None, Random(1))
        self.told: list[tuple[str, Pass | Refusal]] = []

    def now(self, *addresses: str, **fields: object) -> None:
        self.route: HTTPRoute | None = route(HOST, "", *addresses, **fields)

    def enter(self, size: int = 0) -> Pass | Refusal | HTTPRoute:
        return self.gate.enter(HOST, "/", size)

    def wait(self, name: str) -> Ticket:
        assert isinstance(self.enter(), HTTPRoute)
        ticket = Ticket(HOST, "/", ENV, lambda what: self.told.append((name, what)))
        self.gate.wait(ticket)
        return ticket


def test_a_request_passes_to_an_endpoint_and_counts_until_it_leaves() -> None:
    here = Routed("10.0.0.1:80")
    given = here.enter()
    assert isinstance(given, Pass) and given.endpoint.address == "10.0.0.1:80"
    assert (here.gate.inflight, here.gate.busy) == ({"10.0.0.1:80": 1}, {ENV: 1})
    here.gate.leave(given)
    assert (here.gate.inflight, here.gate.busy) == ({}, {})


def test_a_host_that_nobody_routes_is_refused() -> None:
    assert Routed("10.0.0.1:80").gate.enter("other.example.com", "/") == "no route"


def test_a_host_without_an_endpoint_that_is_not_cold_is_not_held() -> None:
    assert Routed(max_concurrency=3).enter() == "no endpoint"


def test_requests_for_what_is_cold_wait_and_go_in_the_order_they_came_once_it_is_up() -> None:
    here = Routed(cold=True, via_activator=True)
    for name in "abc":
        here.wait(name)
    assert here.gate.cold(ENV) and here.told == []
    here.now("10.0.0.1:80", max_concurrency=2)
    here.gate.admit()
    assert [name for name, _ in here.told] == ["a", "b"]
    given = here.told[0][1]
    assert isinstance(given, Pass) and not here.gate.cold(ENV)
    here.gate.leave(given)
    assert [name for name, _ in here.told] == ["a", "b", "c"]


def test_no_endpoint_gets_more_than_its_limit() -> None:
    here = Routed("10.0.0.1:80", "10.0.0.2:80", max_concurrency=3)
    given = [here.enter() for _ in range(6)]
    assert all(isinstance(each, Pass) for each in given)
    assert set(here.gate.inflight.values()) == {3}
    assert isinstance(here.enter(), HTTPRoute)


def test_the_hundred_and_first_is_turned_away() -> None:
    here = Routed(cold=True)
    for number in range(gates.MAX_PARKED):
        here.wait(str(number))
    assert here.enter() == "full"


def test_a_large_body_does_not_wait_but_passes_where_there_is_room() -> None:
    assert Routed(cold=True).enter(gates.MAX_BODY_BYTES + 1) == "too large"
    assert isinstance(Routed(cold=True).enter(gates.MAX_BODY_BYTES), HTTPRoute)
    assert isinstance(Routed("10.0.0.1:80").enter(gates.MAX_BODY_BYTES + 1), Pass)


def test_who_gives_up_makes_room_and_is_told_nothing() -> None:
    here = Routed(cold=True)
    ticket = here.wait("a")
    here.gate.give_up(ticket)
    here.gate.give_up(ticket)
    here.now("10.0.0.1:80")
    here.gate.admit()
    assert here.told == [] and here.gate.parked(ENV) == 0


def test_who_waits_for_a_route_that_is_gone_is_refused() -> None:
    here = Routed(cold=True)
    here.wait("a")
    here.route = None
    here.gate.admit()
    assert here.told == [("a", "no endpoint")]


def test_an_endpoint_that_failed_is_avoided_where_there_is_another() -> None:
    here = Routed("10.0.0.1:80", "10.0.0.2:80")
    given = {here.gate.enter(HOST, "/", avoid=frozenset({"10.0.0.1:80"})) for _ in range(20)}
    assert {each.endpoint.address for each in given if isinstance(each, Pass)} == {"10.0.0.2:80"}


def test_a_sticky_session_goes_where_it_was_whatever_the_limit() -> None:
    here = Routed("10.0.0.1:80", "10.0.0.2:80", max_concurrency=1)
    for _ in range(3):
        given = here.gate.enter(HOST, "/", sticky="web-1")
        assert isinstance(given, Pass) and given.endpoint.address == "10.0.0.2:80"


def test_the_less_loaded_of_two_is_taken() -> None:
    ends, random, inflight = endpoints("a:1", "b:1", "c:1", "d:1"), Random(7), dict[str, int]()
    for _ in range(400):
        found = choose(ends, inflight, 0, random, frozenset())
        assert found is not None
        inflight[found.address] = inflight.get(found.address, 0) + 1
    assert max(inflight.values()) - min(inflight.values()) <= 4


def test_the_last_free_endpoint_of_many_is_found() -> None:
    ends = endpoints(*(f"h{number}:1" for number in range(50)))
    inflight = {each.address: 1 for each in ends[:-1]}
    found = {choose(ends, inflight, 1, Random(seed), frozenset()) for seed in range(30)}
    assert found == {ends[-1]}


def test_choices_are_spread() -> None:
    ends = endpoints("a:1", "b:1", "c:1")
    tally = Tally(choose(ends, {}, 0, Random(seed), frozenset()) for seed in range(300))
    assert set(tally) == set(ends) and min(tally.values()) > 50


def test_demand_tells_what_is_under_way_what_waits_and_the_rates_of_the_last_window() -> None:
    counter = Counter()
    counter.sample({}, {}, 0.0)
    for number in range(20):
        counter.arrived(ENV, NOW + timedelta(seconds=number))
        counter.answered(ENV, 500 if number < 5 else 200, number / 1000)
    early = counter.sample({ENV: 2}, {ENV: 1}, 1.0)[ENV]
    assert (early.inflight, early.parked, early.rps) == (2, 1, 0)
    demand = counter.sample({ENV: 2}, {}, 5.0)[ENV]
    assert (demand.rps, demand.error_rate) == (4.0, 0.25)
    assert (demand.latency_p50_ms, demand.latency_p99_ms) == (10, 19)
    assert demand.last_request_at == NOW + timedelta(seconds=19)
    assert counter.sample({}, {}, 10.0)[ENV].rps == 0


def test_who_was_turned_away_counts_as_parked_once() -> None:
    counter = Counter()
    counter.turned_away(ENV)
    assert [counter.sample({}, {ENV: 3}, at)[ENV].parked for at in (0.0, 1.0)] == [4, 3]


@pytest.mark.parametrize(("before", "total", "told"), [(0, 1, True), (1, 0, True), (100, 105, False), (100, 111, True)])
def test_a_load_that_is_noticeably_different_is_told_at_once(before: int, total: int, told: bool) -> None:
    counter = Counter()
    counter.sample({ENV: before}, {}, 0.0)
    assert counter.noticeable(ENV, total) is told


def test_what_is_not_routed_any_more_is_forgotten() -> None:
    counter = Counter()
    counter.arrived(ENV, NOW)
    counter.forget([ENV])
    counter.answered(ENV, 200, 1.0)
    assert counter.sample({}, {}, 0.0) == {}


def test_an_environment_is_gone_when_the_last_route_that_led_to_it_is() -> None:
    led = Led()

    def host(*environments: str) -> HostRoutes:
        return HostRoutes(
            hostname="h", routes=tuple(HTTPRoute(hostname="h", environment=each) for each in environments)
        )

    assert led.change([("h1", host("a", "b")), ("h2", host("b"))]) == set()
    assert led.change([("h1", host("a"))]) == set()
    assert led.change([("h2", host("c")), ("h1", host("a"))]) == {"b"}
    assert led.change([("h1", None), ("h3", host("a"))]) == set()
    assert led.change([("h2", None), ("h3", None)]) == {"a", "c"}


def test_headers_of_the_connection_stay_behind_those_that_it_names_too() -> None:
    pairs = [("Connection", "keep-alive, X-Mine"), ("Keep-Alive", "5"), ("X-Mine", "1"), ("Upgrade", "h2c"), ("A", "b")]
    assert end_to_end([*pairs, ("Transfer-Encoding", "chunked"), ("TE", "trailers")]) == [("A", "b")]


def test_an_endpoint_learns_where_a_request_came_from() -> None:
    pairs = to_endpoint(
        [("Host", HOST), ("x-forwarded-for", "9.9.9.9"), ("X-Forwarded-Proto", "https")], "10.0.0.9", "http", HOST
    )
    assert dict(pairs) == {
        "Host": HOST,
        "X-Forwarded-For": "9.9.9.9, 10.0.0.9",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": HOST,
    }
