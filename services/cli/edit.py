"""Changing one record of a user: read it, change a field, write it if nobody else wrote meanwhile. And making one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from services.cli import names
from services.cli.exits import Failed, Refused
from services.cli.output import Format, as_json, line
from shared import codec
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import Key, Kind

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Edited:
    """What came of an edit. `sequence` is that of the record in force."""

    kind: Kind
    key: Key
    record: BaseModel
    sequence: int
    changed: bool

    @property
    def title(self) -> str:
        return f"{codec.MODELS[self.kind].__name__} {names.joined(self.key)}"


async def edit(
    bus: Bus, kind: Kind, key: Key, model: type[M], change: Callable[[M], M], *, new: M | None = None
) -> Edited:
    """Write what `change` makes of the record; without one, of `new`, or `Failed`. An equal record is not written.

    Raises `Conflict` where somebody else wrote meanwhile.
    """
    version = await records.get(bus, kind, key)
    before = version.record if version is not None else None
    assert before is None or isinstance(before, model)
    if before is None and new is None:
        raise Failed(f"{codec.MODELS[kind].__name__} {names.joined(key)}: there is none")
    start = before or new
    assert start is not None
    after = change(start)
    if before is not None and after == before:
        assert version is not None
        return Edited(kind, key, before, version.sequence, False)
    sequence = await records.put(bus, kind, key, after, expected=version.sequence if version is not None else 0)
    return Edited(kind, key, after, sequence, True)


def changed(record: M, what: str, **fields: Any) -> M:
    """The record with other fields, validated. Raises `Refused` with every reason."""
    model = type(record)
    return made(model, what, {name: getattr(record, name) for name in model.model_fields} | fields)


def made(model: type[M], what: str, fields: Mapping[str, Any]) -> M:
    """A record of these fields. Raises `Refused` with every reason, and `what` before each."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise Refused(*(f"{what}: {problem}" for problem in codec.problems(error))) from None


def show(edited: Edited, text: str, output: Format) -> None:
    """What is in force now, in a sentence or as a document."""
    if output is Format.JSON:
        as_json(
            {
                "kind": edited.kind.name,
                "name": names.joined(edited.key),
                "action": "updated" if edited.changed else "unchanged",
                "sequence": edited.sequence,
                "record": edited.record,
            }
        )
    else:
        line(text if edited.changed else f"{text} (unchanged)")
