"""Subjects are built and parsed, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import subjects
from shared.errors import InvalidSubject
from shared.model.base import NAME_PATTERN, ULID_PATTERN
from shared.subjects import Key, Kind
from tests.wire.examples import ENV, RECORDS, ULID

LABEL = NAME_PATTERN[1:-1]
FORMS = {
    "": LABEL,
    "version": r"[1-9][0-9]{0,17}",
    "ulid": ULID_PATTERN[1:-1],
    "worker": rf"_?{LABEL}",
    "port": r"[1-9][0-9]{0,4}",
    "host": rf"_wildcard|{LABEL}",
    "token": r"[A-Za-z0-9_][A-Za-z0-9_-]{0,30}",
}


@st.composite
def kinds_and_keys(draw: st.DrawFn) -> tuple[Kind, Key]:
    kind = draw(st.sampled_from(subjects.KINDS))
    tokens = list(kind.tokens)
    if kind.open_ended:
        tokens += [tokens[-1]] * draw(st.integers(0, 3))
    forms = [FORMS[token.partition(":")[2]] for token in tokens]
    return kind, tuple(draw(st.from_regex(form, fullmatch=True)) for form in forms)


@given(kinds_and_keys())
def test_what_is_built_is_parsed_as_it_was(kind_and_key: tuple[Kind, Key]) -> None:
    kind, key = kind_and_key
    assert subjects.parse(kind.subject(*key)) == (kind, key)


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused_with_a_reason(text: str) -> None:
    try:
        kind, key = subjects.parse(text)
    except InvalidSubject as error:
        assert error.reason
    else:
        assert kind.subject(*key) == text


@given(st.from_regex(r"(\*\.)?[a-z0-9]{1,9}(\.[a-z0-9]{1,9}){0,4}", fullmatch=True))
def test_a_hostname_is_a_key_and_back(hostname: str) -> None:
    key = subjects.host_key(hostname)
    assert subjects.hostname(key) == hostname
    subjects.ROUTE_HOST.check(key)


@pytest.mark.parametrize("kind", subjects.KINDS, ids=lambda kind: kind.name)
def test_a_subject_matches_the_filter_of_its_kind(kind: Kind) -> None:
    subject = kind.subject(*RECORDS[kind][0])
    if kind.tokens:
        assert kind.subject_filter == f"{kind.prefix}.>" and subject.startswith(f"{kind.prefix}.")
    else:
        assert kind.subject_filter == subject


def test_no_kind_is_hidden_behind_the_prefix_of_another() -> None:
    for kind in subjects.KINDS:
        assert subjects.kind_of(kind.subject(*RECORDS[kind][0])) == (kind, RECORDS[kind][0])


def test_the_subject_of_an_environment_is_its_three_names() -> None:
    assert subjects.ENVIRONMENT.subject(*ENV) == "steer.environment.shop.web.production"


MALFORMED = {
    "foreign": "orders.created",
    "only our prefix": "steer",
    "an unknown kind": "steer.unknown.a",
    "a token too few": "steer.environment.shop.web",
    "a token too many": "steer.environment.shop.web.production.eu",
    "an empty token": "steer.environment.shop..production",
    "upper case": "steer.environment.Shop.web.production",
    "an underscore": "steer.environment.my_shop.web.production",
    "a name that begins with a hyphen": "steer.environment.-shop.web.production",
    "a name that ends with a hyphen": "steer.environment.shop-.web.production",
    "a name of 64 characters": f"steer.environment.{'a' * 64}.web.production",
    "a wildcard": "steer.environment.shop.web.*",
    "a full wildcard": "steer.environment.shop.web.>",
    "a space": "steer.environment.shop.web.pro duction",
    "a control character": "steer.environment.shop.web.pro\x07duction",
    "a line feed at the end": "steer.environment.shop.web.production\n",
    "letters beyond ASCII": "steer.environment.shop.wéb.production",
    "a version of zero": "steer.release.shop.web.production.0",
    "a version with a leading zero": "steer.release.shop.web.production.07",
    "a version that is a word": "steer.release.shop.web.production.latest",
    "a negative version": "steer.release.shop.web.production.-1",
    "an id in upper case": f"steer.deploy.shop.web.production.{ULID.upper()}",
    "an id that is no ULID": "steer.deploy.shop.web.production.one",
    "a token after a kind that has none": "steer.fleet.x",
    "a route of no host": "steer.route.host",
    "a port of six digits": "steer.route.l4.123456",
    "a decision about nothing": "steer.decision.scheduler.environment",
}


@pytest.mark.parametrize("subject", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_subject_is_refused(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        subjects.parse(subject)


def test_telemetry_names_its_source_and_its_sender() -> None:
    assert subjects.parse_live(subjects.live_node("n1")) == ("node", "n1")
    assert subjects.parse_live(subjects.live_proxy("edge-1")) == ("proxy", "edge-1")
    assert subjects.parse_live(subjects.live_build("big", "builder-2")) == ("build", "big/builder-2")


@pytest.mark.parametrize("subject", ["steer.live.node", "steer.live.node.n1.x", "steer.live.node.N1", "live.node.n1"])
def test_malformed_telemetry_is_refused(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        subjects.parse_live(subject)
