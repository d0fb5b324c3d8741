"""Whatever is asked, an endpoint answers with JSON or refuses with a reason; and what is asked for has limits."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.cli import documents, manifests
from services.cli.security import SERVICES
from shared import subjects
from shared.errors import InvalidSubject, SteerError
from shared.runtime.api import MAX_DEPTH, MAX_QUESTION_BYTES, plain, question_in
from shared.service import Service, Version
from shared.subjects import DECISION, KINDS, NOTICE
from tests.wire.examples import RECORDS, ULID

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDPOINTS = [(service, verb) for service in SERVICES for verb in (*service.queries, *service.commands)]
FIELDS = (
    *("environment", "node", "pool", "namespace", "name", "function", "access", "about", "key", "count", "service"),
    *("platforms", "limit", "host", "hostname", "path", "worker", "token", "id", "owner", "wait_seconds", "address"),
    *("runtime", "build", "project", "app", "after", "offset", "volume", "nodes", "release", "image"),
)
WORDS = st.sampled_from(
    [
        *("shop/web/production", "shop/web", "n1", "default", "ops", "ops/report", "environment", "function", "pool"),
        *("node", "build", "host", "shop.example.com", "*.example.com", "a.b", "*", ">", "", "/", "a/b/c/d/e", ULID),
        *("\x00", "\ud800".encode(errors="surrogatepass").decode(errors="replace"), "x" * 300, "2026-01-01T00:00:00Z"),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=6) | WORDS
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), inner),
    max_leaves=6,
)
REQUESTS = st.dictionaries(st.sampled_from(FIELDS), WORDS | JSON, max_size=5)


@cache
def full(service: str) -> Any:
    """A state that has folded one record of every kind that the service reads."""
    found = next(each for each in SERVICES if each.name == service)
    state = found.new_state()
    for sequence, kind in enumerate(KINDS, start=1):
        if kind in found.reads:
            key, record = RECORDS[kind]
            if kind in (DECISION, NOTICE):
                key = (service, *key[1:])
            found.fold(state, Version(kind, key, sequence, record, NOW + timedelta(seconds=sequence)))
    found.attend(state, NOW)
    return state


def asked(service: Service[Any], verb: str, state: Any, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The answer, as the runtime computes it; None where there is none yet, or the request was refused."""
    try:
        if verb in service.queries:
            return service.queries[verb](state, dict(request), NOW)
        command = service.commands[verb]
        question = {"id": ULID, **request}
        command.decide(state, question, NOW)
        return command.answer(state, question, NOW)
    except SteerError as error:
        assert str(error)
        return None


@pytest.mark.parametrize(("service", "verb"), ENDPOINTS, ids=lambda each: getattr(each, "name", each))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(request_=REQUESTS)
def test_any_request_is_answered_with_json_or_refused_with_a_reason(
    service: Service[Any], verb: str, request_: dict[str, Any]
) -> None:
    body = orjson.dumps(request_)
    request, _ = question_in(body) if b"at_least" not in body else ({}, 0)
    for state in (service.new_state(), full(service.name)):
        answer = asked(service, verb, state, request)
        assert answer is None or orjson.dumps(dict(answer), default=plain)


@given(st.binary(max_size=64) | JSON.map(orjson.dumps))
def test_any_bytes_are_a_question_or_refused(data: bytes) -> None:
    try:
        question, at_least = question_in(data)
    except SteerError as error:
        assert str(error)
    else:
        assert isinstance(question, dict) and at_least >= 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a":"' + b"x" * MAX_QUESTION_BYTES + b'"}', "at most"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "deep"),
        (b'{"a":' + b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH + b"}", "deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "not JSON"),
        (b'{"at_least_sequence":-1}', "not a sequence"),
        (b'{"at_least_sequence":true}', "not a sequence"),
        (b'{"at_least_sequence":1.0}', "not a sequence"),
        (b'{"at_least_sequence":99999999999999999999}', "not a sequence"),
        (b'{"at_least_sequence":null}', "not a sequence"),
        (b'{"a":NaN}', "not JSON"),
        (b'"a"', "not a JSON object"),
        (b"\xff", "not JSON"),
    ],
)
def test_a_request_beyond_the_limits_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(SteerError, match=reason):
        question_in(data)


def test_a_request_at_the_limits_is_read() -> None:
    deepest = b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
    assert question_in(deepest)[1] == 0
    assert question_in(b"") == ({}, 0)
    assert question_in(b' {"at_least_sequence": 7} ') == ({}, 7)


TOKENS = st.sampled_from(
    ["steer", "environment", "route", "host", "release", "", "*", ">", "a", "A", "_wildcard", "9", ULID]
)


@given(st.lists(TOKENS | st.text(max_size=5), max_size=9).map(".".join))
def test_any_subject_is_parsed_or_refused_and_nothing_is_taken_for_another(text: str) -> None:
    try:
        kind, key = subjects.parse(text)
    except InvalidSubject as error:
        assert error.reason
    else:
        assert kind.subject(*key) == text
        assert not {"*", ">", ""} & set(key)


SNIPPETS = st.sampled_from(
    [
        "kind: Environment\n",
        "name: shop/web/production\n",
        "replicas: {min: 1}\n",
        "---\n",
        "- a\n",
        "a: &a [*a]\n",
        "? b\n",
    ]
)


@given(st.lists(SNIPPETS | st.text(max_size=12), max_size=8).map("".join), st.sampled_from(["a.yaml", "a.json"]))
def test_any_text_is_a_manifest_or_a_mistake_with_its_place(text: str, name: str) -> None:
    found, mistakes = manifests.check([manifests.Source(name, text)])
    assert all(mistake.reason and mistake.document >= 1 for mistake in mistakes)
    assert all(manifest.key and manifest.record is not None for manifest in found)


@given(JSON)
def test_what_is_json_is_read_as_it_is(value: Any) -> None:
    text = orjson.dumps({"value": value}).decode()
    (document,) = documents.read(text, json_only=True)
    assert document.error == "" and orjson.dumps(document.value).decode() == text
