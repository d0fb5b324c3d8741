"""Records as small as they can be, and equal ones once.

A cluster has hundreds of thousands of records in memory for weeks, so what nobody asks for is taken from them: which of
their fields were given and which are defaults, an empty mapping of their own, a second copy of an equal part.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from typing import Any, get_args

from pydantic import BaseModel

from shared import codec
from shared.model.base import compact

MOST = 100_000
"""So many of a model are remembered; then they are forgotten, and held once more each."""

DIGEST_BYTES = 16
"""What is longer is known by its digest: it need not be held twice."""

NOTHING_GIVEN: set[str] = set()
_set_given = BaseModel.__dict__["__pydantic_fields_set__"].__set__  # past the guard of a frozen record
_ports: dict[tuple[str, int], dict[str, Any]] = {}
"""Most replicas have one port, and nodes give out the same ones."""
_MAPPINGS = (dict[str, str], dict[str, int])
_NOTHING: dict[str, Any] = {}

known: defaultdict[type[BaseModel], dict[bytes, BaseModel]] = defaultdict(dict)
"""The parts of records that were read, by their bytes or their digest (`name_of`)."""


def name_of(body: bytes) -> bytes:
    return body if len(body) <= DIGEST_BYTES else blake2b(body, digest_size=DIGEST_BYTES).digest()


def thin(record: BaseModel) -> None:
    """Make a record and those in it compact, and take the set of given fields from them."""
    _set_given(record, NOTHING_GIVEN)
    compact(record)
    thin_inside(record)


def thin_inside(record: BaseModel) -> None:
    """The same with what is in a record, and not with itself."""
    values = record.__dict__
    mappings, nesting = _inside(record.__class__)
    for field in mappings:
        values[field] = held_once(values[field])
    for field in nesting:
        value = values[field]
        if isinstance(value, BaseModel):
            if value.__pydantic_fields_set__ is not NOTHING_GIVEN:
                thin(value)
            continue
        inside: Iterable[BaseModel] = value.values() if isinstance(value, dict) else value or ()
        for each in inside:
            thin(each)


def share(record: BaseModel) -> None:
    """Of the records in a record, too, equal ones are one: few environments have a health check of their own."""
    values = record.__dict__
    for field in _inside(record.__class__)[1]:
        value = values[field]
        if isinstance(value, BaseModel):
            values[field] = _shared(value)
        elif isinstance(value, tuple):
            values[field] = tuple([_shared(each) for each in value])


def _shared(record: BaseModel) -> BaseModel:
    share(record)
    return known[type(record)].setdefault(name_of(codec.encode(record)), record)


def held_once(mapping: dict[str, Any]) -> dict[str, Any]:
    """One for all that are empty, and for all that name the same one number."""
    if not mapping:
        return _NOTHING
    if len(mapping) > 1:
        return mapping
    (item,) = mapping.items()
    found = _ports.get(item)
    if found is not None or not isinstance(item[1], int):
        return found or mapping
    if len(_ports) >= MOST:
        _ports.clear()
    _ports[item] = mapping
    return mapping


@cache
def _inside(model: type[BaseModel]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields with texts or numbers by name, and those in which records may be: alone, in a tuple, or in a mapping."""
    fields = model.model_fields.items()
    mappings = tuple([name for name, field in fields if field.annotation in _MAPPINGS])
    return mappings, tuple([name for name, field in fields if _holds_records(field.annotation)])


def _holds_records(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(_holds_records(each) for each in get_args(annotation))
