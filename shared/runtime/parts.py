"""Parts that many records have in common are read once and held once.

The replicas of an environment run the same, and so do most versions of its release: their run spec is most of the bytes
of an assignment, and most of the memory that it holds. So it is cut out of the body, a hole is read in its place, and
the part is put in from a table of those that were read before.

A part is found by the layout of the body, as `codec.encode` writes it. Inside a string no quote stands without a
backslash before it, so what is found are fields. What was cut has to be one whole value, or it is no JSON. Before a part
no brace is open but that of the body, or what is open is part of what a person wrote, where no unknown field is allowed.
Wherever one of these does not hold, the body is read whole.

Which fields of a record were given and which are defaults nobody asks for, so that set is one for all records too.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.model.assignment import WorkloadRef
from shared.model.base import compact
from shared.model.environment import ServiceSpec
from shared.model.run import Resources, RunSpec
from shared.subjects import Key, Kind

MOST_PARTS = 100_000
"""So many of a model are remembered; then they are forgotten, and held once more each."""

DIGEST_BYTES = 16
"""A longer part is known by its digest: it need not be held twice."""


class _Part(NamedTuple):
    """A field, its model, and what is read in its place.

    The hole names the models in it: one that is the default of a field is copied deeply, at twice the cost of reading
    the whole.
    """

    field: str
    model: type[BaseModel]
    hole: bytes = b"{}"


class _Layout(NamedTuple):
    """The groups of `pattern` are in turn what stays and what is a part."""

    pattern: re.Pattern[bytes]
    parts: tuple[_Part, ...]


_SERVICE = _Part("service", ServiceSpec, b'{"resources":{},"run":{},"placement":{}}')
_LAYOUTS: dict[Kind, _Layout] = {
    subjects.ASSIGNMENT: _Layout(
        re.compile(
            rb'({"workload":)({[^{}]*})(,"release":[^{}]*,"run":)({.*})(,"config_hash":[^{}]*,"resources":)({[^{}]*})'
            rb'(,"volume_epoch":.*)',
            re.DOTALL,
        ),
        (
            _Part("workload", WorkloadRef, b'{"kind":"pool","key":""}'),
            _Part("run", RunSpec),
            _Part("resources", Resources),
        ),
    ),
    subjects.ENVIRONMENT: _Layout(re.compile(rb'(.*?"service":)({.*})(})', re.DOTALL), (_SERVICE,)),
    subjects.RELEASE: _Layout(re.compile(rb'(.*?"service":)({.*})(,"source":.*)', re.DOTALL), (_SERVICE,)),
}
_NOTHING_GIVEN: set[str] = set()
_set_given = BaseModel.__dict__["__pydantic_fields_set__"].__set__  # past the guard of a frozen record
_ports: dict[tuple[str, int], dict[str, Any]] = {}
"""Most replicas have one port, and nodes give out the same ones."""
_MAPPINGS = (dict[str, str], dict[str, int])
_NOTHING: dict[str, Any] = {}
_known: defaultdict[type[BaseModel], dict[bytes, BaseModel]] = defaultdict(dict)


def read(kind: Kind, key: Key, body: bytes) -> BaseModel:
    """As `codec.decode`, with its errors; equal parts of records are one object."""
    layout = _LAYOUTS.get(kind)
    record = _assembled(kind, key, body, layout) if layout is not None else None
    if record is None:
        record = codec.decode(kind, key, body)
    thin(record)
    return record


def _assembled(kind: Kind, key: Key, body: bytes, layout: _Layout) -> BaseModel | None:
    """The record, made of its parts and the rest; None where it has to be read whole."""
    pattern, parts = layout
    match = pattern.fullmatch(body)
    if match is None:
        return None
    pieces = list(match.groups())
    found: dict[str, BaseModel] = {}
    try:
        for number, (field, model, hole) in enumerate(parts):
            found[field] = _part(model, pieces[2 * number + 1])
            pieces[2 * number + 1] = hole
        record = codec.decode(kind, key, b"".join(pieces))
    except InvalidRecord:
        return None
    record.__dict__.update(found)
    return record


def _part(model: type[BaseModel], body: bytes) -> BaseModel:
    known, name = _known[model], _name(body)
    part = known.get(name)
    if part is None:
        if len(known) >= MOST_PARTS:
            known.clear()
        part = codec.validate(model, "", body)
        thin(part)
        _share(part)
        known[name] = part
    return part


def _name(body: bytes) -> bytes:
    return body if len(body) <= DIGEST_BYTES else blake2b(body, digest_size=DIGEST_BYTES).digest()


def _share(record: BaseModel) -> None:
    """Of the records in a record, too, equal ones are one: few environments have a health check of their own."""
    values = record.__dict__
    for field in _nesting(type(record)):
        value = values[field]
        if isinstance(value, BaseModel):
            values[field] = _shared(value)
        elif isinstance(value, tuple):
            values[field] = tuple([_shared(each) for each in value])


def _shared(record: BaseModel) -> BaseModel:
    _share(record)
    return _known[type(record)].setdefault(_name(codec.encode(record)), record)


def thin(record: BaseModel) -> None:
    """Make a record and those in it compact, and take the set of given fields from them."""
    _set_given(record, _NOTHING_GIVEN)
    compact(record)
    values = record.__dict__
    for field in _mappings(type(record)):
        values[field] = _mapping(values[field])
    for field in _nesting(type(record)):
        value = values[field]
        if isinstance(value, BaseModel):
            if value.__pydantic_fields_set__ is not _NOTHING_GIVEN:
                thin(value)
            continue
        inside: Iterable[BaseModel] = value.values() if isinstance(value, dict) else value or ()
        for each in inside:
            thin(each)


def _mapping(mapping: dict[str, Any]) -> dict[str, Any]:
    """One for all that are empty, and for all that name the same one number."""
    if not mapping:
        return _NOTHING
    if len(mapping) > 1:
        return mapping
    (item,) = mapping.items()
    known = _ports.get(item)
    if known is not None or not isinstance(item[1], int):
        return known or mapping
    if len(_ports) >= MOST_PARTS:
        _ports.clear()
    _ports[item] = mapping
    return mapping


@cache
def _nesting(model: type[BaseModel]) -> tuple[str, ...]:
    """The fields in which records may be: alone, in a tuple, or as the values of a mapping."""
    return tuple([name for name, field in model.model_fields.items() if _holds_records(field.annotation)])


@cache
def _mappings(model: type[BaseModel]) -> tuple[str, ...]:
    """The fields with texts or numbers by name."""
    return tuple([name for name, field in model.model_fields.items() if field.annotation in _MAPPINGS])


def _holds_records(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(_holds_records(each) for each in get_args(annotation))
