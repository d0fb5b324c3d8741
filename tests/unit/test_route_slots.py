"""The slots from which Caddy reads endpoints: who gets which, and what is on the disk."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.routes.bridge.slots import Slots
from services.routes.render import FORMATS, FORMS, Options, Rendered, Renderer
from services.routes.render.slots import allot, slots
from shared.model.domain import Middleware
from tests.table import route, table

SHOP = "shop.example.com"
ADDRESSES = st.lists(
    st.sampled_from([f"10.0.0.{last}:80" for last in range(1, 12)]), min_size=1, max_size=9, unique=True
)


def rendered(*addresses: str, **fields: object) -> Rendered:
    options = Options(slots="/run/slots", mark="steer-7-abc")
    return FORMATS["caddy"](table([route(SHOP, "", *addresses, **fields)]), options)


@settings(max_examples=100, deadline=None)
@given(ADDRESSES, ADDRESSES)
def test_every_endpoint_has_as_many_slots_as_the_next_and_none_moves_without_need(
    before: list[str], after: list[str]
) -> None:
    had = allot((), before)
    has = allot(had, after)
    counts = Counter(has)
    assert set(counts) == set(after) and max(counts.values()) - min(counts.values()) <= 1
    assert len(has) == slots(len(after)) >= 2 * len(after)
    assert allot(has, after) == has
    if len(had) == len(has):
        kept = Counter(old for old, new in zip(had, has, strict=True) if old == new)
        assert kept == Counter(had) & counts


def test_other_endpoints_are_the_same_configuration_and_another_policy_is_not() -> None:
    one, two = rendered("10.0.0.1:80"), rendered("10.0.0.2:80", "10.0.0.3:80")
    assert (one.body, one.mark) == (two.body, two.mark) and "10.0.0" not in one.body
    assert f'"@id":"{one.mark}"' in one.body
    (group,) = one.slots
    assert one.slots[group] == ("10.0.0.1:80",) and two.slots[group] == ("10.0.0.2:80", "10.0.0.3:80")
    others = (
        rendered("10.0.0.1:80", middleware=Middleware(ip_allowlist=("10.0.0.0/8",))),
        rendered("10.0.0.1:80", environment="shop/other/production"),
        rendered(*(f"10.0.0.{last}:80" for last in range(1, 10))),
    )
    assert all(other.mark != one.mark and other.slots.keys() != one.slots.keys() for other in others)


def test_a_group_goes_with_the_last_endpoint_of_its_host() -> None:
    renderer = Renderer(FORMS["caddy"], Options(slots="/run/slots"))
    renderer.change(table([route(SHOP, "", "10.0.0.1:80")]).hosts.items())
    assert len(renderer.rendered().slots) == 1
    renderer.change(table([route(SHOP)]).hosts.items())
    assert not renderer.rendered().slots


def written(directory: Path, group: str) -> list[str]:
    return [path.read_text() for path in sorted((directory / group).iterdir(), key=lambda path: int(path.name))]


def test_the_files_say_what_was_written_last_and_a_slot_stays_while_its_endpoint_does(tmp_path: Path) -> None:
    files = Slots(tmp_path)
    files.write({"g": ("a:1", "b:1")}, anew=False)
    first = written(tmp_path, "g")
    assert Counter(first) == {"a:1": 8, "b:1": 8}
    Slots(tmp_path).write({"g": ("b:1", "c:1")}, anew=False)
    second = written(tmp_path, "g")
    assert [slot for slot in second if slot == "b:1"] == ["b:1"] * 8
    assert all(new == "b:1" for old, new in zip(first, second, strict=True) if old == "b:1")


def test_files_that_are_gone_are_written_again(tmp_path: Path) -> None:
    files = Slots(tmp_path)
    files.write({"g": ("a:1",)}, anew=False)
    files.close("v1")
    assert files.has("v1") and not files.has("v2") and not Slots(tmp_path / "else").has("")
    for path in (tmp_path / "g").iterdir():
        path.unlink()
    files.write({"g": ("a:1",)}, anew=True)
    assert written(tmp_path, "g") == ["a:1"] * 16


def test_a_group_is_taken_away_once_neither_this_configuration_nor_the_one_before_has_it(tmp_path: Path) -> None:
    files = Slots(tmp_path)
    for wanted in ({"a": ("a:1",)}, {"b": ("a:1",)}, {"c": ("a:1",)}):
        files.write(wanted, anew=False)
        files.prune(wanted)
        files.close("v")
    assert {path.name for path in tmp_path.iterdir()} == {"b", "c", "mark"}


def test_a_group_that_was_written_by_half_is_looked_at_again(tmp_path: Path) -> None:
    files = Slots(tmp_path)
    files.write({"g": ("a:1",)}, anew=False)
    (tmp_path / "g" / "3.new").mkdir()
    with pytest.raises(OSError, match="3"):
        files.write({"g": ("b:1",)}, anew=False)
    (tmp_path / "g" / "3.new").rmdir()
    files.write({"g": ("a:1",)}, anew=False)
    assert written(tmp_path, "g") == ["a:1"] * 16


@pytest.mark.parametrize("mark", ["steer-1-a", "steer-2-b"])
def test_the_mark_inside_is_not_the_versions(mark: str) -> None:
    options = Options(slots="/run/slots")
    routes = table([route(SHOP, "", "10.0.0.1:80")])
    assert FORMATS["caddy"](routes, replace(options, mark=mark)).body == FORMATS["caddy"](routes, options).body
