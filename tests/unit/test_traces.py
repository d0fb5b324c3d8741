"""A trace goes on from a record to what it leads to, and costs no memory without end."""

from shared.runtime.traces import MOST, Traces

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_trace_goes_from_cause_to_effect_and_on() -> None:
    traces = Traces()
    traces.received(7, {"traceparent": TRACE})
    traces.led_to(7, 12)
    traces.led_to(12, 15)
    traces.led_to(3, 16)
    assert [traces.of(sequence) for sequence in (7, 12, 15, 16, 0)] == [TRACE, TRACE, TRACE, "", ""]


def test_what_is_no_trace_is_dropped() -> None:
    traces = Traces()
    for sequence, text in enumerate(("", "x", TRACE.upper(), TRACE + "\r\nSteer-Term: 1", TRACE + "\n")):
        traces.received(sequence, {"traceparent": text})
        assert traces.of(sequence) == ""
    traces.received(9, None)


def test_only_the_newest_are_known() -> None:
    traces = Traces()
    for sequence in range(MOST + 3):
        traces.received(sequence, {"traceparent": TRACE})
    assert traces.of(2) == ""
    assert traces.of(3) == traces.of(MOST + 2) == TRACE
