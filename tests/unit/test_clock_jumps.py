"""The clock of a service says when the server's has jumped ahead of it."""

from datetime import UTC, datetime, timedelta

from shared.runtime.clock import ServiceClock

START = datetime(2030, 1, 1, tzinfo=UTC)


def clock() -> ServiceClock:
    found = ServiceClock()
    found.received(START, 100.0)
    found.anchor(START, 100.0)
    return found


def test_what_was_received_before_the_term_is_no_jump() -> None:
    assert not clock().jumped()


def test_a_timestamp_that_was_on_its_way_is_no_jump() -> None:
    found = clock()
    found.received(START + timedelta(seconds=11), 110.0)
    assert not found.jumped()
    assert found.now(110.0) == START + timedelta(seconds=11)


def test_a_timestamp_far_ahead_is_one_jump_and_told_once() -> None:
    found = clock()
    found.received(START + timedelta(seconds=60), 110.0)
    found.received(START + timedelta(seconds=61), 111.0)
    assert found.jumped()
    assert not found.jumped()
    assert found.now(112.0) == START + timedelta(seconds=62)
