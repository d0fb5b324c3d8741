"""Parts that many records have in common are read once and held once.

The replicas of an environment run the same, and so do most versions of its release: their run spec is most of the bytes
of an assignment, and most of the memory that it holds. So it is cut out of the body, a hole is read in its place, and
the part is put in from a table of those that were read before.

A part is found by the names of its field and of the one behind it. Inside a string no quote stands without a backslash
before it, so what is found are fields; what was cut is JSON of its own only if it is one whole value; and a field with
nothing but the hole in it shows that the hole is where the part was. Wherever one of these does not hold, the body is
read whole.

Which fields of a record were given and which are defaults nobody asks for, so that set is one for all records too.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.model.environment import ServiceSpec
from shared.model.run import Resources, RunSpec
from shared.subjects import Key, Kind

MOST_PARTS = 100_000
"""So many are remembered; then they are forgotten, and held once more each."""


class _Part(NamedTuple):
    """The value of `field` begins with the last byte of `opening` and ends with the first one of `closing`.

    `given` are the fields that the hole has: a model that is the default of a field is copied deeply, at twice the cost
    of reading the whole.
    """

    field: str
    model: type[BaseModel]
    opening: bytes
    closing: bytes
    given: frozenset[str] = frozenset()

    @property
    def hole(self) -> bytes:
        return b"{%b}" % b",".join(b'"%b":{}' % field.encode() for field in sorted(self.given))


_SPEC = frozenset({"resources", "run", "placement"})
_PARTS: dict[Kind, tuple[_Part, ...]] = {
    subjects.ASSIGNMENT: (
        _Part("run", RunSpec, b'"run":{', b'},"config_hash":'),
        _Part("resources", Resources, b'"resources":{', b'},"volume_epoch":'),
    ),
    subjects.ENVIRONMENT: (_Part("service", ServiceSpec, b'"service":{', b"}}", _SPEC),),
    subjects.RELEASE: (_Part("service", ServiceSpec, b'"service":{', b'},"source":', _SPEC),),
}
_HOLES = {(kind, part.field): part.hole for kind, parts in _PARTS.items() for part in parts}
_NOTHING_GIVEN: set[str] = set()
_set_given = BaseModel.__dict__["__pydantic_fields_set__"].__set__  # past the guard of a frozen record
_known: dict[tuple[type[BaseModel], bytes], BaseModel] = {}


def read(kind: Kind, key: Key, body: bytes) -> BaseModel:
    """As `codec.decode`, with its errors; equal parts of records are one object."""
    parts = _PARTS.get(kind)
    record = _assembled(kind, key, body, parts) if parts is not None else None
    if record is None:
        record = codec.decode(kind, key, body)
    thin(record)
    return record


def _assembled(kind: Kind, key: Key, body: bytes, parts: tuple[_Part, ...]) -> BaseModel | None:
    """The record, made of its parts and the rest; None where it has to be read whole."""
    found: list[BaseModel] = []
    rest = body
    try:
        for part in parts:
            begin = rest.find(part.opening) + len(part.opening) - 1
            end = rest.rfind(part.closing) + 1
            if begin < len(part.opening) or end <= begin:
                return None
            found.append(_part(part.model, rest[begin:end]))
            rest = rest[:begin] + _HOLES[kind, part.field] + rest[end:]
        record = codec.decode(kind, key, rest)
    except InvalidRecord:
        return None
    values = record.__dict__
    for part, value in zip(parts, found, strict=True):
        if values[part.field].__pydantic_fields_set__ != part.given:
            return None
        values[part.field] = value
    return record


def _part(model: type[BaseModel], body: bytes) -> BaseModel:
    known = _known.get((model, body))
    if known is None:
        if len(_known) >= MOST_PARTS:
            _known.clear()
        known = codec.validate(model, "", body)
        thin(known)
        _known[model, body] = known
    return known


def thin(record: BaseModel) -> None:
    """Take the set of given fields from a record and those in it."""
    _set_given(record, _NOTHING_GIVEN)
    values = record.__dict__
    for field in _nesting(type(record)):
        value = values[field]
        if isinstance(value, BaseModel):
            if value.__pydantic_fields_set__ is not _NOTHING_GIVEN:
                thin(value)
            continue
        inside: Iterable[BaseModel] = value.values() if isinstance(value, dict) else value or ()
        for each in inside:
            if _nesting(type(each)):
                thin(each)
            else:
                _set_given(each, _NOTHING_GIVEN)


@cache
def _nesting(model: type[BaseModel]) -> tuple[str, ...]:
    """The fields in which records may be: alone, in a tuple, or as the values of a mapping."""
    return tuple([name for name, field in model.model_fields.items() if _holds_records(field.annotation)])


def _holds_records(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(_holds_records(each) for each in get_args(annotation))
