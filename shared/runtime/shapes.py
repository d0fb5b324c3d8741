"""The shape of a body: how a model is read piece by piece, where `codec.encode` has written it.

A body is cut in front of some of its fields, by their names. What stands between two cuts is one of these pieces:

* a row: numbers, times and plain texts, which a regular expression finds and which are converted one by one;
* a segment: fields that are validated as a record of these fields alone, and remembered where many have them in common;
* a part: a field with a record of its own, which the reader of parts knows;
* a stretch of such pieces, remembered together.

What a cut finds may be something else, deep in the body, that looks like it. That does no harm: each piece is validated
by itself, as fields between braces, and none has a field of another. Pieces that are valid so and stand in a row, with a
comma between them, are what the whole body says. Wherever anything is otherwise, the body is read whole, and that says
what is wrong with it.

The time that a piece takes is linear in its size, since anyone may have written it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from shared.model.base import compact
from shared.runtime.thin import NOTHING_GIVEN, held_once, share, thin_inside

MOST_REMEMBERED = 4096
"""So many texts of a piece are remembered; then they are forgotten. What is equal comes close together in the log."""

LONGEST_TEXT = 1024
"""Bytes. Every text of a row may be so long, whatever else is asked of it; and no longer piece is remembered."""

Values = dict[str, Any]

_ANY_TEXT = TypeAdapter(str)
_new = object.__new__
_set_dict, _set_given, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class Piece(Protocol):
    """`read` puts the values of its fields in; False where the body has to be read whole."""

    model: type[BaseModel]
    fields: tuple[str, ...]

    def read(self, body: bytes, start: int, end: int, into: Values) -> bool: ...


class _Known(dict[bytes, Any]):
    """What texts stand for. One that is not known is converted, and remembered."""

    def __init__(self, convert: Callable[[bytes], Any]) -> None:
        self._convert = convert

    def __missing__(self, text: bytes) -> Any:
        if len(self) > MOST_REMEMBERED:
            self.clear()
        found = self[text] = self._convert(text)
        return found


def _text(raw: bytes) -> str:
    if len(raw) > LONGEST_TEXT:
        raise ValueError("too long to be looked at here")
    return _ANY_TEXT.validate_json(b'"%b"' % raw) if b"\\" in raw else str(raw, "utf-8")


def _time(raw: bytes) -> datetime:
    return datetime.fromisoformat(str(raw, "ascii"))


def _time_or_none(raw: bytes | None) -> datetime | None:
    return None if raw is None else _time(raw)


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


class Scalar:
    """How a value is written, and how it is read. An optional one is left out where it is None."""

    def __init__(self, pattern: bytes, convert: Callable[[Any], Any], *, optional: bool = False) -> None:
        self.pattern = pattern
        self.convert = convert
        self.optional = optional


_TIME = rb'"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6})?Z)"'
NUMBER = Scalar(rb"(0|[1-9][0-9]{0,17})", int)
"""Not negative."""
NUMBER_OR_NONE = Scalar(rb"(0|-?[1-9][0-9]{0,17})", _number, optional=True)
TIME = Scalar(_TIME, _time)
TIME_OR_NONE = Scalar(_TIME, _time_or_none, optional=True)
TEXT = Scalar(rb'"([^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*)"', _Known(_text).__getitem__)
"""Of any characters."""


def one_of(*texts: str) -> Scalar:
    """One of these texts, of letters alone."""
    return Scalar(b'"(%b)"' % "|".join(texts).encode(), _Known(_text).__getitem__)


def mapping(annotation: Any) -> Scalar:
    """Texts or numbers by name; with braces among them it is read whole."""
    validate = TypeAdapter(annotation).validate_json
    return Scalar(rb"(\{[^{}]*\})", _Known(lambda raw: held_once(validate(raw))).__getitem__)


class Row:
    """Fields that stand next to each other, each with its form. The first one is always there."""

    def __init__(self, model: type[BaseModel], **scalars: Scalar) -> None:
        self.model = model
        self.fields = tuple(scalars)
        self._converters = tuple([scalar.convert for scalar in scalars.values()])
        self._match = re.compile(b"".join(_items(scalars))).fullmatch

    def read(self, body: bytes, start: int, end: int, into: Values) -> bool:
        match = self._match(body, start, end)
        if match is None:
            return False
        try:
            for field, convert, raw in zip(self.fields, self._converters, match.groups()):  # noqa: B905 - equally many
                into[field] = convert(raw)
        except ValueError:  # no text, or no time
            return False
        return True


def _items(scalars: Mapping[str, Scalar]) -> Iterator[bytes]:
    for number, (field, scalar) in enumerate(scalars.items()):
        item = b'%b"%b":%b' % (b"," if number else b"", field.encode(), scalar.pattern)
        yield b"(?:%b)?" % item if scalar.optional else item


class Segment:
    """Fields that are validated together. With `remembered` false each is thought to be unlike the others."""

    def __init__(self, model: type[BaseModel], *fields: str, remembered: bool = True) -> None:
        self.model = model
        self.fields = fields
        self._validator = _restricted(model, fields).__pydantic_validator__
        self._known: dict[bytes, Values] = {}
        self._remembered = remembered

    def read(self, body: bytes, start: int, end: int, into: Values) -> bool:
        text = body[start:end]
        values = self._known.get(text)
        if values is None:
            values = self._validated(text)
            if values is None:
                return False
        into.update(values)
        return True

    def _validated(self, text: bytes) -> Values | None:
        try:
            record = self._validator.validate_json(b"{%b}" % text)
        except ValidationError:
            return None
        thin_inside(record)
        if self._remembered:
            share(record)
            _remember(self._known, text, record.__dict__)
        return cast(Values, record.__dict__)


def _restricted(model: type[BaseModel], fields: tuple[str, ...]) -> type[BaseModel]:
    """A model with some of the fields alone."""
    config = cast(ConfigDict, {**model.model_config, "extra": "forbid"})
    chosen: Any = {name: (model.model_fields[name].annotation, copy(model.model_fields[name])) for name in fields}
    return cast(type[BaseModel], create_model(f"{model.__name__}Segment", __config__=config, **chosen))


def _remember(known: dict[bytes, Values], text: bytes, values: Values) -> None:
    if len(text) > LONGEST_TEXT:
        return
    if len(known) >= MOST_REMEMBERED:
        known.clear()
    known[text] = dict(values)


class Part:
    """One field with a record of its own. `reader` gets its bytes, and gives None for what it cannot read."""

    fields: tuple[str, ...]

    def __init__(self, model: type[BaseModel], field: str, reader: Callable[[bytes], BaseModel | None]) -> None:
        self.model = model
        self.fields = (field,)
        self._field = field
        self._begin = f'"{field}":'.encode()
        self._reader = reader

    def read(self, body: bytes, start: int, end: int, into: Values) -> bool:
        if not body.startswith(self._begin, start):
            return False
        record = self._reader(body[start + len(self._begin) : end])
        into[self._field] = record
        return record is not None


class Pieces:
    """Pieces that follow each other, in the order of the model's fields."""

    def __init__(self, *pieces: Piece) -> None:
        self.model = pieces[0].model
        self.fields = tuple([field for piece in pieces for field in piece.fields])
        self._pieces = [(piece.read, *_marks(following)) for piece, following in pairwise(pieces)]
        self._last = pieces[-1].read

    def read(self, body: bytes, start: int, end: int, into: Values) -> bool:
        for read, mark, others in self._pieces:
            at = body.find(mark, start, end)
            if at < 0 and others:
                at = next((found for other in others if (found := body.find(other, start, end)) >= 0), -1)
            if at < 0 or not read(body, start, at, into):
                return False
            start = at + 1
        return self._last(body, start, end, into)


def _marks(piece: Piece) -> tuple[bytes, tuple[bytes, ...]]:
    """What a piece may begin with: of its fields, those which are left out where they are None, and the next one."""
    marks = []
    for field in piece.fields:
        marks.append(f',"{field}":'.encode())
        info = piece.model.model_fields[field]
        if info.is_required() or info.get_default(call_default_factory=True) is not None:
            break
    return marks[0], tuple(marks[1:])


class Stretch(Pieces):
    """Pieces that many records have in common, all of them."""

    def __init__(self, *pieces: Piece) -> None:
        super().__init__(*pieces)
        self._known: dict[bytes, Values] = {}

    def read(self, body: bytes, start: int, end: int, into: Values) -> bool:
        text = body[start:end]
        values = self._known.get(text)
        if values is None:
            values = {}
            if not super().read(body, start, end, values):
                return False
            _remember(self._known, text, values)
        into.update(values)
        return True


class Shape:
    """A whole model in pieces. The first field of the body is always there."""

    def __init__(self, model: type[BaseModel], *pieces: Piece) -> None:
        whole = Pieces(*pieces)
        assert whole.fields == tuple(model.model_fields), f"{model.__name__} has other fields"
        assert not model.__pydantic_decorators__.field_validators, f"{model.__name__} checks single fields"
        self._model = model
        self._read = whole.read
        self._blank: Values = compact(model.model_construct()).__dict__
        self._checks = [each.func for each in model.__pydantic_decorators__.model_validators.values()]

    def read(self, body: bytes) -> BaseModel | None:
        """The record, thin; None where the body has to be read whole."""
        values = self._blank.copy()
        if body[:1] != b"{" or body[-1:] != b"}" or not self._read(body, 1, len(body) - 1, values):
            return None
        record = _new(self._model)
        _set_dict(record, values)
        _set_given(record, NOTHING_GIVEN)
        _set_extra(record, None)
        _set_private(record, None)
        try:
            for check in self._checks:
                check(record)
        except ValueError:
            return None
        return record
