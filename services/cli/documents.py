"""Text to documents: YAML and JSON, several in one file, as plain values with string keys.

Stricter than the formats: a key that comes twice or is no string is a mistake, and a date stays the text that was
written. One bad document does not hide the next, unless the syntax itself is broken.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAX_VALUES = 200_000
"""The most values that the anchors of one document may unfold to."""


@dataclass(frozen=True, slots=True)
class Document:
    """The `number`th document of a source, counted from 1: its value, or the reason why it has none."""

    number: int
    value: Any = None
    error: str = ""


def read(text: str, *, json_only: bool = False) -> Iterator[Document]:
    """Every document of a text. Without `json_only`, what begins like a JSON object is read as JSON too."""
    if json_only or text.lstrip().startswith(("{", "[")):
        return _json(text)
    return _yaml(text)


class _Mistake(Exception):
    """A value that a document must not hold."""


class _Loader(yaml.SafeLoader):
    """Safe YAML whose scalars are JSON's."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    seen: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise _Mistake(f"line {line}: the key {key!r} is no text; put it in quotes")
        if key in seen:
            raise _Mistake(f"line {line}: the key {key!r} comes twice")
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _yaml(text: str) -> Iterator[Document]:
    number = 0
    try:
        loader = _Loader(text)
        while loader.check_node():
            number += 1
            node = loader.get_node()
            try:
                value = loader.construct_document(node)
                _check_plain(value)
            except _Mistake as mistake:
                yield Document(number, error=str(mistake))
            except yaml.YAMLError as error:
                yield Document(number, error=_reason(error))
            else:
                yield Document(number, value)
    except yaml.YAMLError as error:
        yield Document(max(number, 1), error=_reason(error))
    except RecursionError:
        yield Document(max(number, 1), error="nested too deeply")


def _reason(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    return f"line {mark.line + 1}, column {mark.column + 1}: {what}" if mark else str(what)


def _json(text: str) -> Iterator[Document]:
    decoder = json.JSONDecoder(object_pairs_hook=_without_twins)
    position, number = _skip(text, 0), 0
    while position < len(text):
        number += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            yield Document(number, error=f"line {error.lineno}, column {error.colno}: {error.msg}")
            return
        except (_Mistake, ValueError) as mistake:
            yield Document(number, error=str(mistake))
            return
        except RecursionError:
            yield Document(number, error="nested too deeply")
            return
        yield Document(number, value)
        position = _skip(text, position)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Mistake(f"the key {twice!r} comes twice")
    return found


def _check_plain(value: Any) -> None:
    """Raise `_Mistake` for what JSON has not, and for anchors that unfold without bound."""
    stack, count = [value], 0
    while stack:
        count += 1
        if count > MAX_VALUES:
            raise _Mistake(f"more than {MAX_VALUES:,} values: an anchor that contains itself, or too many of them")
        match stack.pop():
            case dict() as mapping:
                stack += mapping.values()
            case list() as items:
                stack += items
            case None | bool() | int() | float() | str():
                continue
            case other:
                raise _Mistake(f"a {type(other).__name__} has no place in a record")
