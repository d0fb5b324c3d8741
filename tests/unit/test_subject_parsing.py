"""A subject is parsed at once, and what is wrong with it is found out token by token: both say the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import subjects
from shared.errors import InvalidSubject
from shared.subjects import Key, Kind

NAMES = ("steer", "release", "deploy", "node", "notice", "routed", "environment", "pool", "fleet", "shop", "instancex")
TOKENS = st.sampled_from([*NAMES, "1", "01", "0" * 26, "_web", "Web", "", "*", "a-", "a\n", "é"])
PREFIXES = st.sampled_from([kind.prefix for kind in subjects.KINDS])


def parsed(subject: str) -> tuple[Kind, Key] | None:
    try:
        return subjects.parse(subject)
    except InvalidSubject:
        return None


def token_by_token(subject: str) -> tuple[Kind, Key] | None:
    try:
        kind, key = subjects.kind_of(subject)
        kind.check_tokens(key)
    except (InvalidSubject, IndexError):  # a kind without tokens has no form for one
        return None
    enough = len(key) >= len(kind.tokens) if kind.open_ended else len(key) == len(kind.tokens)
    return (kind, key) if enough else None


@given(PREFIXES | TOKENS, st.lists(TOKENS, max_size=5))
@settings(max_examples=200)
def test_a_subject_is_parsed_as_its_tokens_say(prefix: str, tokens: list[str]) -> None:
    subject = ".".join([prefix, *tokens])
    assert parsed(subject) == token_by_token(subject)


@pytest.mark.parametrize("subject", ["steer.instancex", "steer.instance", "steer", "", "steer.fleet.a", "other.node.a"])
def test_what_is_no_record_is_none(subject: str) -> None:
    assert parsed(subject) is None
