"""Copies of a map share what neither has changed, and nobody can tell."""

from hypothesis import given
from hypothesis import strategies as st

from shared.runtime.shared_map import SHARDS, SharedMap

KEYS = st.integers(0, 3) | st.integers(0, 3).map(lambda number: number + SHARDS)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "drop", "copy"]), KEYS, st.integers(0, 9)), max_size=40)


@given(STEPS)
def test_a_map_and_its_copies_are_what_dicts_and_theirs_would_be(steps: list[tuple[str, int, int]]) -> None:
    mapping: SharedMap[int, int] = SharedMap()
    plain: dict[int, int] = {}
    kept: list[tuple[SharedMap[int, int], dict[int, int]]] = []
    for what, key, value in steps:
        match what:
            case "put":
                mapping.put(key, value)
                plain[key] = value
            case "drop":
                assert mapping.drop(key) == plain.pop(key, None)
            case "copy":
                kept.append((mapping, plain))
                mapping, plain = mapping.copy(), plain.copy()
    for ours, theirs in [*kept, (mapping, plain)]:
        assert ours == theirs
        assert (len(ours), sorted(ours)) == (len(theirs), sorted(theirs))
        assert all(ours.get(key) == theirs.get(key) for key in (*range(4), *range(SHARDS, SHARDS + 4)))


def test_a_copy_that_changes_one_entry_shares_all_other_shards() -> None:
    before: SharedMap[int, int] = SharedMap()
    for number in range(10 * SHARDS):
        before.put(number, number)
    after = before.copy()
    after.put(7, 0)
    different = [mine is not theirs for mine, theirs in zip(before._shards, after._shards, strict=True)]
    assert (sum(different), before[7], after[7]) == (1, 7, 0)
