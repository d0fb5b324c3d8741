"""A mapping of which a copy costs the same whatever its size: what two copies have in common is there once.

The entries are spread over shards, ordinary dicts. A copy shares them all; who changes an entry then takes a copy of its
shard first. So a version of ten thousand routes that differs in one of them costs one shard, and the versions before it
stay as they were.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

SHARDS = 512


class SharedMap(Mapping[Key, Value]):
    """In no order. `put` and `drop` change this one; no copy sees it."""

    __slots__ = ("_own", "_shards", "_size")

    def __init__(self, other: "SharedMap[Key, Value] | None" = None) -> None:
        self._shards: list[dict[Key, Value]] = [{}] * SHARDS if other is None else other._shards.copy()
        self._own: set[int] = set()
        self._size: int = 0 if other is None else other._size

    def copy(self) -> "SharedMap[Key, Value]":
        """As it is now. From here on neither owns a shard."""
        self._own.clear()
        return SharedMap(self)

    def put(self, key: Key, value: Value) -> None:
        shard = self._owned(key)
        before = len(shard)
        shard[key] = value
        self._size += len(shard) - before

    def drop(self, key: Key) -> Value | None:
        """What was there; None where nothing was."""
        if key not in self:
            return None
        self._size -= 1
        return self._owned(key).pop(key)

    def _owned(self, key: Key) -> dict[Key, Value]:
        """The shard of a key, which no copy shares."""
        index = hash(key) % SHARDS
        if index not in self._own:
            self._own.add(index)
            self._shards[index] = self._shards[index].copy()
        return self._shards[index]

    def __getitem__(self, key: Key) -> Value:
        return self._shards[hash(key) % SHARDS][key]

    def __contains__(self, key: object) -> bool:
        return key in self._shards[hash(key) % SHARDS]

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._shards)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"
