"""The counters of a proxy as demand."""

from datetime import UTC, datetime, timedelta

from services.routes.bridge.statistics import Counts, Rates, of_caddy, of_haproxy

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ENV = "shop/web/production"
NAMES = {"r1": ENV, "r2": ENV, "r3": "shop/api/production"}


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_the_rows_of_backends_are_counted() -> None:
    text = (
        "# pxname,svname,qcur,scur,stot,hrsp_5xx,lastsess,\n"
        "r1,s0_web-1,0,1,5,0,3,\nr1,BACKEND,1,2,50,7,3,\nr2,BACKEND,0,0,0,,-1,\nhttp,FRONTEND,,9,99,0,,\n\n"
    )
    assert of_haproxy(text) == {
        "r1": Counts(inflight=3, requests=50, errors=7, idle_seconds=3),
        "r2": Counts(inflight=0, requests=0, errors=0, idle_seconds=None),
    }


def test_the_metrics_of_hosts_are_counted() -> None:
    text = "\n".join(
        [
            "# TYPE caddy_http_requests_in_flight gauge",
            'caddy_http_requests_in_flight{handler="subroute",host="a.example.com",server="http"} 2',
            'caddy_http_requests_in_flight{handler="subroute",host="a.example.com",server="https"} 1',
            'caddy_http_request_duration_seconds_count{code="200",handler="subroute",host="a.example.com"} 7',
            'caddy_http_request_duration_seconds_count{code="503",handler="subroute",host="a.example.com"} 2',
            'caddy_http_request_duration_seconds_count{code="404",handler="static_response",host="_other"} 9',
        ]
    )
    assert of_caddy(text) == {"a.example.com": Counts(inflight=3, requests=9, errors=2)}


def test_demand_is_the_sum_of_an_environments_names_and_rates_are_those_of_a_window() -> None:
    rates = Rates()
    rates.demand({"r1": Counts(requests=100), "r2": Counts(requests=10)}, NAMES, 0.0, NOW)
    counts = {"r1": Counts(inflight=1, requests=140, errors=10), "r2": Counts(inflight=2, requests=20), "x": Counts(9)}
    demand = rates.demand(counts, NAMES, 5.0, later(5))
    assert set(demand) == {ENV, "shop/api/production"}
    assert (demand[ENV].inflight, demand[ENV].rps, demand[ENV].error_rate) == (3, 10.0, 0.2)
    assert demand[ENV].last_request_at == later(5)
    assert demand["shop/api/production"].last_request_at is None


def test_a_counter_that_began_again_counts_from_zero() -> None:
    rates = Rates()
    rates.demand({"r1": Counts(requests=1000, errors=900)}, NAMES, 0.0, NOW)
    demand = rates.demand({"r1": Counts(requests=25, errors=5)}, NAMES, 5.0, later(5))
    assert (demand[ENV].rps, demand[ENV].error_rate) == (5.0, 0.2)


def test_the_last_request_is_never_earlier_than_was_known() -> None:
    rates = Rates()
    rates.demand({"r1": Counts(idle_seconds=2)}, NAMES, 0.0, later(100))
    demand = rates.demand({"r1": Counts(idle_seconds=None)}, NAMES, 1.0, later(101))
    assert demand[ENV].last_request_at == later(98)
