"""A key that is parsed with what is known of others is the one that is parsed alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import subjects
from shared.errors import InvalidSubject
from shared.runtime import keys

NAMES = ("steer", "release", "deploy", "node", "notice", "routed", "environment", "pool", "fleet", "shop", "instancex")
TOKENS = st.sampled_from([*NAMES, "1", "01", "0" * 26, "_web", "Web", "", "*", "a-", "a\n", "é"])
PREFIXES = st.sampled_from([kind.prefix for kind in subjects.KINDS])


def outcome(subject: str) -> tuple[object, str]:
    try:
        return subjects.parse(subject), ""
    except InvalidSubject as error:
        return None, str(error)


@given(PREFIXES | TOKENS, st.lists(TOKENS, max_size=5))
@settings(max_examples=200)
def test_a_subject_parses_as_it_does_alone(prefix: str, tokens: list[str]) -> None:
    subject = ".".join([prefix, *tokens])
    wanted = outcome(subject)
    for _ in range(2):  # the second time with what was remembered
        try:
            found: tuple[object, str] = keys.parse(subject), ""
        except InvalidSubject as error:
            found = None, str(error)
        assert found == wanted


def test_a_prefix_without_an_end_is_no_prefix() -> None:
    keys.parse("steer.instance.steer.instancex")
    with pytest.raises(InvalidSubject):
        keys.parse("steer.instancex")


def test_a_token_is_of_its_form_only_where_that_is_asked_for() -> None:
    assert keys.parse("steer.release.shop.web.production.1")[1] == ("shop", "web", "production", "1")
    with pytest.raises(InvalidSubject):
        keys.parse("steer.release.shop.web.production.web")


def test_equal_tokens_are_one_object() -> None:
    node = keys.parse("steer.node.n-77")[1][0]
    assert keys.parse("steer.instance.n-77.web-1")[1][0] is node
    assert keys.parse("steer.instance.n-77.web-1")[1][0] is node
