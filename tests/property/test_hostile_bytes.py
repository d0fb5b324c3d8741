"""What stands in headers, in telemetry and in a command's template is anybody's text: read, or refused with a reason."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.builder.worker import template
from shared import codec, subjects
from shared.errors import ConfigurationError, InvalidRecord, InvalidSubject
from shared.runtime import headers
from shared.runtime.encode import RESTORES, is_tombstone, restores_in, sequence_in
from shared.runtime.telemetry import MODELS

LINES = st.lists(st.binary(max_size=20) | st.sampled_from([b": ", b"\r\n", b"Steer-Restores: 7", b"\xff"]), max_size=6)


@given(LINES.map(b"\r\n".join))
def test_any_bytes_are_headers_and_lead_to_texts(raw: bytes) -> None:
    lazy, read = headers.RawHeaders(b"NATS/1.0\r\n" + raw), headers.parse(b"NATS/1.0\r\n" + raw)
    assert all(isinstance(each, str) for pair in read.items() for each in pair)
    assert {name: lazy[name] for name in lazy} == read
    assert is_tombstone(lazy) == (read.get("Steer-Operation") == "delete")


@given(st.text(max_size=30) | st.integers(0, 2**64).map(str))
@example("9" * 5000)
@example("²")
@example("-1")
@example("1_000")
def test_any_text_is_a_sequence_of_a_log_or_none(text: str) -> None:
    sequence = sequence_in({RESTORES: text}, RESTORES)
    assert 0 <= sequence < 2**63 and (not sequence or sequence == int(text))
    assert restores_in({RESTORES: text}, 5) == (sequence or 5)


@pytest.mark.parametrize("source", MODELS)
@given(data=st.binary(max_size=100))
def test_any_bytes_are_a_sample_or_refused(source: str, data: bytes) -> None:
    try:
        codec.validate(MODELS[source], f"steer.live.{source}.a", data)
    except InvalidRecord as error:
        assert error.problems


@given(st.lists(st.sampled_from(["steer", "live", "node", "build", "proxy", "", "*", "a", "A", "\x00"]), max_size=6))
def test_any_subject_is_a_source_or_refused(tokens: list[str]) -> None:
    try:
        source, name = subjects.parse_live(".".join(tokens))
    except InvalidSubject as error:
        assert str(error)
    else:
        assert ["steer", "live", source, *name.split("/")] == tokens


@given(st.text("{}ab_ '\"\\\n", max_size=20))
def test_any_text_is_the_template_of_a_command_or_refused(text: str) -> None:
    try:
        assert template.parse(text)
    except ConfigurationError as error:
        assert str(error)
