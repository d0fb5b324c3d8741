"""The access hash byte for byte, the key of a pool, and its form as a text."""

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.pooler.access import SECTIONS, PoolKey, access_document, access_hash, hash_of, key_of, parse_pool
from shared.model.function import (
    BlobBinding,
    CatalogBinding,
    Function,
    FunctionAccess,
    FunctionScaling,
    KvBinding,
    Link,
    Pooling,
    SqlBinding,
)

EIGHT = tuple(name for name in SECTIONS if name != "sql")


def function(**fields: Any) -> Function:
    return Function(runtime="python", handler="m.handle", artifact="a", **fields)


def kv(alias: str, store: str, table: str) -> KvBinding:
    return KvBinding.model_construct(alias=alias, store=store, table=table)


def link(alias: str, target: str, timeout_seconds: float = 0) -> Link:
    return Link(alias=alias, target=target, timeout_seconds=timeout_seconds)


def unchecked(**fields: Any) -> Function:
    """A function whose bindings no validation has seen: the hash takes what it gets."""
    return function().model_copy(update=fields)


EMPTY = function()
BOUND = function(
    kv=(kv("y", "s", "u"), kv("x", "s", "t")),
    links=(link("q", "c"), link("p", "b", 30)),
)
MEDIA = function(
    blob=(
        BlobBinding(alias="b2", bucket="media", prefix="thumbs"),
        BlobBinding(alias="b1", bucket="media", prefix="raw"),
    ),
    catalogs=(CatalogBinding(alias="lake", catalog="analytics"), CatalogBinding(alias="dw", catalog="warehouse")),
    config=("settings", "flags"),
)
ODD = unchecked(
    kv=(kv("<&>", "sté\u2028\u2029", "\U0001f600"),),
    secrets=("a\"b\\c/d'\t\x01\x7f",),
)
ONE_TABLE = function(kv=(kv("t", "s", "bound"),))

Case = tuple[Function, list[str], list[str], str]

EIGHT_KEYS: dict[str, Case] = {
    "V1": (EMPTY, [], [], "3610d91275fc05308b8e994c54ecc00cc7f1684e96d3a3b0fd0373c800308e37"),
    "V2": (BOUND, [], [], "4f525ea0b5938611b1264ba1b34b956bd56793a189ebdb72d78a7704a57e2e76"),
    "V3": (function(secrets=("x", "y")), [], [], "f785bb5d50bcc03767f17ef1d7aedfb07af48fa8d364f79b9f246e64dfc1595a"),
    "V4": (function(secrets=("y", "x")), [], [], "814372eaca9cf81cac163699099e61710abbf23a9b66c20068e5e8eb978f1ccc"),
    "V5": (BOUND, ["kv/s/t", "blob/k/raw"], [], "b8bf3b193dd54c2a5c06da77463b85019072e460090c9cba28e59e5fb97fcd7d"),
    "V6": (EMPTY, [], ["group/rg1"], "be4da6c77829b7f5d51bc34ddf6dbfdaef39a4c1339fe30cfc597773d3b12e6d"),
    "V7": (EMPTY, ["kv/s/t"], [], "e7f4a768ba1d4c9870b13b5c448a2daf1a559929e3cf5937fc64a9e8265d68f7"),
    "V8": (MEDIA, [], [], "ca459a48335a4e27c79369572027897b223929a75756ae533545b0b008503662"),
    "V9": (ODD, [], [], "09077989206991ccaca8d3e1d435938062eb04129b921d16a256709d29680236"),
    "V10": (
        ONE_TABLE,
        ["kv/s/bound"],
        ["group/rg1"],
        "c8f731d5f27b9bb2b38258f6db12c2e285491295fd7aead96a9106b5caeab30d",
    ),
    "V11": (ONE_TABLE, [], ["group/rg1"], "1fbdc882b1328ca3783a8fda8e32944170a780e76919d3470d53e7e1081cfb02"),
    "V12": (EMPTY, [], ["group/g", "group/g"], "5885c437a9425de308d97446aaee5426904c3bca56ce44d170e80e015e06fb5e"),
    "V13": (
        unchecked(kv=(kv("a", "s2", "t"), kv("a", "s1", "t"))),
        [],
        [],
        "2e81d521c703d6ea55a2975d01d5b1ebc92a21797a362259a221ed030953155c",
    ),
    "V14": (
        function(kv=tuple(kv(alias, "s", "t") for alias in ("a2", "a10", "a1", "a-1"))),
        [],
        [],
        "3c548c8efff0ce7ad0984eb370d9d03325d25631b88bb916ce3867bcbb1fc45a",
    ),
}
NINE_KEYS: dict[str, Case] = {
    "S1": (EMPTY, [], [], "cf738fafaa09191bf0b93ce1c775e6499cb86cbb381ff87af58c66f085ed10c7"),
    "S2": (BOUND, [], [], "41dd9f451b87d176cc8b54d189e0e39a9d07bfe129765550e7d36330bc944d08"),
    "S3": (function(secrets=("x", "y")), [], [], "de720fe780506df3eb06a75e137ca0f6cf4c19741ecc2d2505301bd7b27ef7cf"),
    "S4": (EMPTY, [], ["group/rg1"], "db11499b8c25de3309ba1bff9936468cbefccf5e0bf4801584c585c32acd2461"),
    "S5": (BOUND, ["kv/s/t", "blob/k/raw"], [], "ae811973f73326122a48ac1ecbeac90fb092b02d2b45e4e517193ec64c4a97d9"),
    "S6": (ODD, [], [], "a5b668c66a670d11d04f82e8a5e48222c8ca510a18a9bd7d5cb161079b96852a"),
}


@pytest.mark.parametrize("case", EIGHT_KEYS.values(), ids=EIGHT_KEYS)
def test_the_older_document_without_sql_has_the_known_hash(case: Case) -> None:
    it, owned, grants, digest = case
    assert sha256(access_document(it, owned, grants, EIGHT)).hexdigest() == digest
    assert access_hash(it, owned, grants, EIGHT) == digest[:16]


@pytest.mark.parametrize("case", NINE_KEYS.values(), ids=NINE_KEYS)
def test_the_document_has_the_known_hash(case: Case) -> None:
    it, owned, grants, digest = case
    assert sha256(access_document(it, owned, grants)).hexdigest() == digest
    assert access_hash(it, owned, grants) == digest[:16]


def test_an_empty_document_has_every_list_in_order() -> None:
    assert access_document(EMPTY, [], []) == (
        b'{"kv":[],"blob":[],"catalogs":[],"sql":[],"links":[],"secrets":[],"config":[],"owned":[],"grants":[]}'
    )


def test_a_document_is_escaped_as_go_does_it() -> None:
    document = access_document(ODD, [], []).decode()
    assert document.startswith(
        '{"kv":[{"alias":"\\u003c\\u0026\\u003e","store":"sté\\u2028\\u2029","table":"\U0001f600"}],'
    )
    assert '"a\\"b\\\\c/d\'\\t\\u0001\x7f"' in document


def test_a_sql_binding_is_alias_database_and_schema() -> None:
    it = function(sql=(SqlBinding(alias="ledger", database="books", schema_name="public"),))
    assert b'"sql":[{"alias":"ledger","database":"books","schema":"public"}]' in access_document(it, [], [])


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        access_hash(unchecked(secrets=("\ud800",)), [], [])


def test_the_order_of_aliases_and_of_what_is_owned_does_not_matter() -> None:
    other = BOUND.model_copy(update={"kv": BOUND.kv[::-1], "links": BOUND.links[::-1]})
    assert access_hash(BOUND, ["a", "b"], ["c", "d"]) == access_hash(other, ["b", "a"], ["d", "c"])
    assert len(access_hash(BOUND, [], [])) == 16


def test_the_order_of_secrets_and_of_settings_matters() -> None:
    assert access_hash(function(secrets=("x", "y")), [], []) != access_hash(function(secrets=("y", "x")), [], [])
    assert access_hash(function(config=("x", "y")), [], []) != access_hash(function(config=("y", "x")), [], [])


def test_what_is_owned_and_what_is_granted_count_each_for_itself() -> None:
    hashes = {access_hash(EMPTY, ["a"], []), access_hash(EMPTY, [], ["a"]), access_hash(EMPTY, [], [])}
    assert len(hashes) == 3


def test_neither_code_nor_scaling_nor_the_timeout_of_a_link_counts() -> None:
    other = BOUND.model_copy(
        update={
            "handler": "other.handle",
            "artifact": "b",
            "runtime": "node",
            "timeout_seconds": 3.0,
            "env": {"A": "b"},
            "scaling": FunctionScaling(min_replicas=1),
            "pooling": Pooling(worker="w"),
            "links": tuple(each.model_copy(update={"timeout_seconds": 9.0}) for each in BOUND.links),
        }
    )
    assert access_hash(BOUND, [], []) == access_hash(other, [], [])


def test_no_access_record_is_one_that_says_nothing() -> None:
    assert hash_of(BOUND, None) == hash_of(BOUND, FunctionAccess())


def test_a_grant_that_is_recorded_twice_is_one_grant() -> None:
    twice = FunctionAccess(owned=("a", "a"), grants=("group/g", "group/g"))
    assert hash_of(EMPTY, twice) == hash_of(EMPTY, FunctionAccess(owned=("a",), grants=("group/g",)))


def test_a_function_without_a_worker_has_no_key() -> None:
    assert key_of("shop", EMPTY) is None


def test_a_key_is_namespace_runtime_worker_and_access() -> None:
    it = function(pooling=Pooling(worker="main"))
    key = key_of("shop", it)
    assert key == PoolKey("shop", "python", "main", "cf738fafaa09191b")
    assert str(key) == "python/main/cf738fafaa09191b"
    assert key_of("shop", it, FunctionAccess(grants=("group/rg1",))) != key


PART = st.text(st.characters(exclude_characters="/"), min_size=1, max_size=8)


@given(PART, PART, PART)
def test_a_key_is_read_back_from_its_text(runtime: str, worker: str, access: str) -> None:
    key = PoolKey("shop", runtime, worker, access)
    assert parse_pool("shop", str(key)) == key


@pytest.mark.parametrize("text", ["", "nodejs22/agents", "nodejs22//abc", "a/b/c/d", "/agents/abc", "a/b/"])
def test_a_text_that_is_no_pool_is_refused(text: str) -> None:
    assert parse_pool("shop", text) is None
