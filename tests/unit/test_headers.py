"""Headers that are read when somebody asks for one."""

from shared.runtime.headers import RawHeaders, any_of

RAW = b"NATS/1.0\r\nSteer-Service: scheduler\r\nSteer-Restores: 0\r\nEmpty:\r\n\r\n"


def test_what_is_there_is_found_and_what_is_not_is_not() -> None:
    headers = RawHeaders(RAW)
    assert "Steer-Operation" not in headers
    assert headers.get("Steer-Operation") is None
    assert "Steer-Restores" in headers
    assert headers["Steer-Restores"] == "0"
    assert "Empty" in headers
    assert len(headers) == 3


def test_a_name_that_stands_in_a_value_is_no_header() -> None:
    headers = RawHeaders(b"NATS/1.0\r\nNote: Steer-Operation: delete\r\n\r\n")
    assert "Steer-Operation" not in headers
    assert headers.get("Steer-Operation", "none") == "none"


def test_what_is_asked_for_among_others_is_found_by_the_beginning_of_a_line() -> None:
    names = any_of("Steer-Operation", "Steer-Restores")
    assert names.search(RAW)
    assert not any_of("Steer-Operation", "traceparent").search(RAW)
    assert not names.search(b"NATS/1.0\r\nNote: Steer-Operation: delete\r\n\r\n")
