"""Hours of load through concurrency scaling and idle to zero: steady, nothing lost, the same for the same seed."""

import os
from pathlib import Path

import pytest

from bench import day
from bench.load import Course, callers, trace

DATA = Path(os.environ.get("STEER_DATA") or Path(__file__).parents[3] / "shared" / "data") / "azure-functions"
TRACE = DATA / "requests_200.csv"
HOUR = 3600


@pytest.mark.parametrize("seed", [1, 2])
def test_an_environment_under_load_does_not_go_up_down_up_within_a_minute_and_loses_no_request(seed: int) -> None:
    load = callers(seed, HOUR // 2, each=1)
    result = day.ours(load, HOUR // 2)
    assert result.turns == 0
    assert result.lost == 0
    assert result.served > 100


def test_what_is_not_called_costs_nothing_after_its_idle_time_and_wakes_when_it_is() -> None:
    (sparse,) = [caller for caller in callers(3, 3 * HOUR, each=1) if caller.name.startswith("sparse")]
    result = day.ours([sparse], 3 * HOUR)
    assert len(sparse.requests) >= 2 and result.lost == 0
    assert 0 < result.cold <= len(sparse.requests)
    alone = sparse.idle_timeout_seconds + 120
    assert result.replica_seconds <= (1 + len(sparse.requests)) * alone, "it runs for its callers, and then no more"


def test_the_same_seed_is_the_same_day() -> None:
    assert callers(7, HOUR, each=1) == callers(7, HOUR, each=1)
    first, second = (day.ours(callers(7, 600, each=1), 600) for _ in range(2))
    assert first == second


def test_a_turn_is_two_changes_of_direction_within_a_minute() -> None:
    course = Course()
    for at, width in {0: 1, 30: 0, 60: 1, 200: 2, 270: 1, 400: 2}.items():
        course.note(at, width, width)
    assert course.turns == 1


@pytest.mark.skipif(not TRACE.is_file(), reason="STEER_DATA names no folder with azure-functions/requests_200.csv")
def test_the_functions_of_a_recorded_trace_are_all_served() -> None:
    load = trace(TRACE)
    last = max(at + seconds for caller in load for at, seconds in caller.requests)
    result = day.ours(load, int(last) + 120)
    assert result.served == sum(len(caller.requests) for caller in load) > 0
    assert (result.lost, result.turns) == (0, 0)
