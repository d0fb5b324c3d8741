"""What `steer apply` accepts and what it refuses, before it publishes anything."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli import manifests
from services.cli.exits import Refused
from services.cli.manifests import Source
from shared import subjects
from shared.model.environment import Environment

SHOP = Path(__file__).parents[2] / "examples" / "shop" / "manifests"

GOOD = """
kind: Environment
name: shop/web/production
replicas: {min: 2}
"""


def mistakes(text: str, name: str = "shop.yaml") -> list[str]:
    found, wrong = manifests.check([Source(name, text)])
    assert wrong, f"accepted: {found}"
    return [str(mistake) for mistake in wrong]


def test_a_document_becomes_a_record_under_its_subject() -> None:
    (manifest,), wrong = manifests.check([Source("shop.yaml", GOOD)])
    assert wrong == []
    assert manifest.kind.subject(*manifest.key) == "steer.environment.shop.web.production"
    assert isinstance(manifest.record, Environment) and manifest.record.replicas.min == 2
    assert manifest.title == "Environment shop/web/production"


def test_the_manifests_of_the_shop_are_valid() -> None:
    found, wrong = manifests.check(manifests.sources_of([str(SHOP)], io.StringIO()))
    assert wrong == []
    assert [manifest.kind.name for manifest in found] == ["environment", "environment", "domain", "domain"]


def test_json_says_the_same_as_yaml() -> None:
    body = {"kind": "Environment", "name": "shop/web/production", "replicas": {"min": 2}}
    from_yaml, _ = manifests.check([Source("a.yaml", GOOD)])
    for source in (Source("a.json", json.dumps(body)), Source("stdin", json.dumps(body, indent="\t"))):
        from_json, wrong = manifests.check([source])
        assert wrong == [] and from_json[0].record == from_yaml[0].record


def test_several_json_documents_follow_one_another() -> None:
    one = '{"kind":"NodeControl","name":"n1","drain":true}'
    two = '{"kind":"NodeControl","name":"n2","drain":true}'
    found, wrong = manifests.check([Source("nodes.json", f"{one}\n{two}\n")])
    assert wrong == [] and [manifest.key for manifest in found] == [("n1",), ("n2",)]


def test_a_release_comes_before_the_request_to_deploy_it() -> None:
    text = """
kind: DeployRequest
name: shop/web/production/01kb8v3w2xq4r5s6t7v8w9x0yz
version: "1"
---
kind: Release
name: shop/web/production/1
image: web:1
"""
    found, wrong = manifests.check([Source("a.yaml", text)])
    assert wrong == [] and [manifest.kind.name for manifest in found] == ["release", "deploy"]


def test_all_mistakes_of_all_documents_are_named_with_their_place() -> None:
    text = """
kind: Environment
name: shop/web/production
replicas: {min: two}
---
kind: Domain
name: shop/front
hostname: Shop.example.com
environment: web/production
---
kind: Environment
name: shop/web
servce: {}
"""
    found = mistakes(text)
    assert len(found) == 4
    assert found[0].startswith("shop.yaml, document 1: replicas.min: ")
    assert found[1].startswith("shop.yaml, document 2: hostname: 'Shop.example.com' does not match ")
    assert found[2].startswith("shop.yaml, document 3: name: ") and "<project>/<app>/<environment>" in found[2]
    assert found[3] == "shop.yaml, document 3: servce: there is no such field"


def test_a_long_text_that_is_refused_is_not_repeated_in_whole() -> None:
    (found,) = mistakes(f"kind: BuildRequest\nname: a/b/{7:026d}\nowner: a\nsource_digest: {'?' * 10_000}\n")
    assert "source_digest: '????" in found and len(found) < 300


def test_one_record_written_twice_is_a_mistake_that_names_both_places() -> None:
    _, wrong = manifests.check([Source("a.yaml", GOOD), Source("b.yaml", GOOD)])
    assert [str(mistake) for mistake in wrong] == ["b.yaml, document 1: name: the same as in a.yaml, document 1"]


def test_an_empty_document_counts_and_is_no_mistake() -> None:
    found, wrong = manifests.check([Source("a.yaml", f"---\n---\n{GOOD}")])
    assert wrong == [] and found[0].document == 2


def test_a_broken_document_does_not_hide_the_good_one_before_it() -> None:
    found, wrong = manifests.check([Source("a.yaml", f"{GOOD}---\nkind: [\n")])
    assert len(found) == 1 and str(wrong[0]).startswith("a.yaml, document 2: line ")


def test_a_date_stays_the_text_that_was_written() -> None:
    text = "kind: Environment\nname: shop/web/production\nservice: {run: {env: {SINCE: 2026-03-01}}}\n"
    (manifest,), wrong = manifests.check([Source("a.yaml", text)])
    assert wrong == [] and isinstance(manifest.record, Environment)
    assert manifest.record.service.run.env == {"SINCE": "2026-03-01"}


REFUSED = {
    "text instead of a mapping": ("hello", "not a mapping"),
    "a list": ("- kind: Environment", "not a mapping"),
    "no kind": ("name: a/b/c", "kind: missing"),
    "a kind that is unknown": ("kind: Deployment2\nname: a", "kind: 'Deployment2' is none of yours"),
    "a kind that a service owns": ("kind: Assignment\nname: n1/a", "kind: 'Assignment' is none of yours"),
    "a kind in lower case": ("kind: environment\nname: a/b/c", "kind: 'environment' is none"),
    "a kind that is a list": ("kind: [Environment]\nname: a/b/c", "kind: "),
    "no name": ("kind: Environment", "name: missing"),
    "a name that is a number": ("kind: NodeControl\nname: 7", "name: 7 is no text"),
    "a name with dots": ("kind: Environment\nname: shop.web.production", "name: "),
    "a name with a wildcard": ("kind: Environment\nname: shop/web/*", "name: "),
    "a key twice": (f"{GOOD}replicas: {{min: 3}}", "line 5: the key 'replicas' comes twice"),
    "a key twice inside": ("kind: Environment\nname: a/b/c\nreplicas: {min: 1, min: 2}", "the key 'min' comes twice"),
    "a key that is a number": ("kind: Environment\nname: a/b/c\n7: x", "the key 7 is no text"),
    "a variable that is a number": (
        "kind: Environment\nname: a/b/c\nservice: {run: {env: {PORT: 80}}}",
        "service.run.env.PORT: ",
    ),
    "not a number": ("kind: Environment\nname: a/b/c\nidle_timeout_seconds: .nan", "idle_timeout_seconds: "),
    "a huge number": (f"kind: Environment\nname: a/b/c\nreplicas: {{min: {'9' * 50}}}", "replicas.min: "),
    "bytes": ("kind: Environment\nname: a/b/c\nx: !!binary aGFsbG8=", "a bytes has no place"),
    "a set": ("kind: Environment\nname: a/b/c\nx: !!set {a}", "a set has no place"),
    "an object of Python": ("kind: Environment\nname: !!python/object:os.system {}", "could not determine"),
    "a tab": ("kind:\tEnvironment\n\tname: a/b/c", "line "),
    "a control character": ("kind: Environment\x07", "special characters"),
    "an anchor in itself": ("&a\nkind: Environment\nname: a/b/c\nservice: *a", ""),
    "too deep": ("[" * 100_000, ""),
    "too deep in YAML": ("- " + "[" * 100_000, ""),
    "anchors upon anchors": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{n}: &{n} [{','.join([f'*{p}'] * 10)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)),
        "more than 200,000 values",
    ),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_manifest_is_refused_with_the_reason(text: str, reason: str) -> None:
    found = mistakes(text)
    assert found[0].startswith("shop.yaml, document 1: ") and reason in found[0]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"absent\.yaml: No such file"):
        manifests.sources_of([str(tmp_path / "absent.yaml")], io.StringIO())


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match=r"a\.yaml: not UTF-8"):
        manifests.sources_of([str(tmp_path)], io.StringIO())


def test_a_directory_without_manifests_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no manifest in it"):
        manifests.sources_of([str(tmp_path)], io.StringIO())


def test_a_directory_gives_its_manifests_in_order_and_a_hyphen_the_standard_input(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json", "notes.txt"):
        (tmp_path / name).write_text("{}")
    sources = manifests.sources_of([str(tmp_path), "-"], io.StringIO("typed"))
    assert [Path(source.name).name for source in sources] == ["a.yaml", "b.yml", "c.json", "stdin"]
    assert sources[-1].text == "typed"


@given(st.text(max_size=200), st.sampled_from(["a.yaml", "a.json"]))
def test_any_text_is_read_or_refused(text: str, name: str) -> None:
    found, wrong = manifests.check([Source(name, text)])
    assert all(manifest.kind.owner is subjects.Owner.USERS for manifest in found)
    assert all(mistake.reason for mistake in wrong)
