"""The table of `services.agent.health`: what the reference's agent does, with quicker first probes."""

import pytest

from services.agent.health import Health, HealthState, after_probe, delay_seconds
from shared.model.run import Healthcheck

CHECK = Healthcheck()


def probed(results: str, check: Healthcheck = CHECK, seconds_apart: float = 10) -> Health:
    """The health after results such as `+--`, the first of them `seconds_apart` after the start."""
    health = Health()
    for number, result in enumerate(results, start=1):
        health = after_probe(health, check, passed=result == "+", elapsed_seconds=number * seconds_apart)
    return health


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ("", "running"),
        ("+", "healthy"),
        ("--+", "healthy"),
        ("+--", "healthy"),
        ("+---", "unhealthy"),
        ("+--+--", "healthy"),
        ("+---+", "healthy"),
        ("+----", "unhealthy"),
        ("-----", "running"),  # 50 s: the grace of 60 s is not over
        ("------", "unhealthy"),
        ("------+", "healthy"),
    ],
)
def test_three_failures_make_unhealthy_after_the_grace_and_one_pass_makes_healthy(
    results: str, state: HealthState
) -> None:
    assert probed(results).state == state


def test_one_failure_long_after_the_grace_is_not_enough() -> None:
    assert probed("--", seconds_apart=100).state == "running"


def test_the_grace_does_not_protect_what_was_healthy_once() -> None:
    assert probed("+---", seconds_apart=1).state == "unhealthy"


def test_the_threshold_is_that_of_the_check() -> None:
    check = Healthcheck(unhealthy_threshold=1, grace_period_seconds=0)
    assert probed("-", check).state == "unhealthy"


def test_first_probes_come_quickly_and_slow_down_to_the_interval() -> None:
    health, delays = Health(), []
    for _ in range(9):
        delays.append(delay_seconds(health, CHECK))
        health = after_probe(health, CHECK, passed=False, elapsed_seconds=0)
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10])


def test_after_the_first_pass_probes_come_at_the_interval() -> None:
    assert delay_seconds(probed("+"), CHECK) == 10
    assert delay_seconds(probed("+---"), CHECK) == 10


def test_a_short_interval_is_never_exceeded() -> None:
    assert delay_seconds(Health(), Healthcheck(interval_seconds=0.05)) == 0.05
    assert delay_seconds(probed("-" * 100), CHECK) == 10
