"""`steer get`, `steer watch` and `steer delete`: records as they are."""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
import yaml

from services.cli import names
from services.cli.exits import Failed, Refused
from services.cli.leaders import last_sequence
from services.cli.output import Format, Output, age, as_json, as_json_line, line, say, table
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.summary import summary
from services.cli.world import from_now_on, readable
from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.service import Version
from shared.subjects import Key, Kind

KindName = Annotated[str, typer.Argument(metavar="KIND", help="As environment, Environments or node-status.")]


def get(
    kind: KindName,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The tokens of the subject joined by /, or the first of them.")
    ] = "",
    *,
    at: Annotated[int | None, typer.Option(help="The version that ruled at this sequence of the log.", min=1)] = None,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Show one record, as a manifest, or a list of those whose name begins like this."""
    wanted = names.kind_called(kind)
    key = names.prefix_of(wanted, name)
    whole = _is_whole(wanted, key)
    if at is not None and not whole:
        raise Refused(f"--at is for one record; a name is {names.form(wanted)}")

    async def work(bus: Bus) -> None:
        if whole:
            show_one(await one(bus, wanted, key, at), output)
        else:
            _show_list(wanted, key, await several(bus, wanted, key), output)

    run(work, data)


def watch(
    kinds: Annotated[list[str] | None, typer.Argument(metavar="KIND", help="Left out: every kind.")] = None,
    *,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Print every change from now on, one a line, until Ctrl-C."""
    wanted = [names.kind_called(kind) for kind in kinds or ()] or list(subjects.KINDS)

    async def work(bus: Bus) -> None:
        await _watch(bus, wanted, output)

    run(work, data)


def delete(
    kind: KindName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tokens of the subject joined by /.")],
    *,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Publish a tombstone for a record of yours, or for a node that is gone for good."""
    wanted = names.kind_called(kind)
    if wanted.owner is not subjects.Owner.USERS and wanted is not subjects.NODE:
        raise Refused(f"{wanted.name}: {wanted.owner.value} alone writes it")
    key = names.key_of(wanted, name)

    async def work(bus: Bus) -> None:
        sequence = await remove(bus, wanted, key)
        if output is Format.JSON:
            as_json({"kind": wanted.name, "name": name, "action": "deleted", "sequence": sequence})
        else:
            line(f"{codec.MODELS[wanted].__name__} {name}: deleted")

    run(work, data)


async def one(bus: Bus, kind: Kind, key: Key, at: int | None = None) -> Version:
    """The present version of a record, or the one that ruled at a sequence. Raises `Failed` where there is none."""
    title = f"{codec.MODELS[kind].__name__} {names.joined(key)}".strip()
    try:
        version = await records.get(bus, kind, key, at)
    except InvalidRecord as error:
        problems = "; ".join(map(str, error.problems))
        raise Failed(f"{title}: the last version cannot be read: {problems}") from None
    if version is None or version.record is None:
        there_is = "there is none" if at is None else f"there was none at sequence {at}"
        deleted = f", deleted at sequence {version.sequence}" if version else ""
        raise Failed(f"{title}: {there_is}{deleted}")
    return version


async def several(bus: Bus, kind: Kind, prefix: Key) -> list[Version]:
    """The records of a kind whose key begins like this, in the order of their keys."""
    subject_filter = kind.subject(*prefix, ">") if kind.tokens else kind.subject()
    return sorted(await records.load(bus, [subject_filter]), key=lambda version: version.key)


async def remove(bus: Bus, kind: Kind, key: Key) -> int:
    """The sequence of the tombstone. Raises `Failed` where there is nothing, `Conflict` where somebody wrote first."""
    last = await records.last_message(bus, kind.subject(*key))
    version = readable(last) if last else None
    if last is None or (version is not None and version.record is None):
        raise Failed(f"{codec.MODELS[kind].__name__} {names.joined(key)}: there is none")
    return await records.put(bus, kind, key, None, expected=last.sequence)


def _is_whole(kind: Kind, key: Key) -> bool:
    return len(key) == len(kind.tokens) and not kind.open_ended


def manifest(version: Version) -> dict[str, Any]:
    """A record as `steer apply` reads it."""
    assert version.record is not None
    body = version.record.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return {"kind": codec.MODELS[version.kind].__name__, "name": names.joined(version.key), **body}


def plain(version: Version) -> dict[str, Any]:
    """A version as programs read it."""
    return {
        "kind": version.kind.name,
        "name": names.joined(version.key),
        "subject": version.kind.subject(*version.key),
        "sequence": version.sequence,
        "at": version.at,
        "record": version.record,
    }


def show_one(version: Version, output: Format) -> None:
    if output is Format.JSON:
        as_json(plain(version))
        return
    line(f"# {version.kind.subject(*version.key)}, sequence {version.sequence}, {version.at:%Y-%m-%d %H:%M:%S} UTC")
    line(yaml.safe_dump(manifest(version), sort_keys=False, allow_unicode=True, width=120).rstrip())


def _show_list(kind: Kind, prefix: Key, versions: Sequence[Version], output: Format) -> None:
    if output is Format.JSON:
        as_json([plain(version) for version in versions])
        return
    if not versions:
        say(f"there is no {kind.name}" + (f" whose name begins with {names.joined(prefix)}" if prefix else ""))
        return
    now = datetime.now(UTC)
    table(
        ["NAME", "SEQUENCE", "AGE", ""],
        (
            (
                names.joined(version.key) or kind.name,
                str(version.sequence),
                age(version.at, now),
                summary(version.record),
            )
            for version in versions
        ),
    )


async def _watch(bus: Bus, kinds: Sequence[Kind], output: Format) -> None:
    filters = [kind.subject_filter for kind in kinds]
    seen = await last_sequence(bus)
    say("watching; Ctrl-C ends it")
    async with aclosing(from_now_on(bus, filters, seen)) as versions:
        async for version in versions:
            _show_change(version, output)


def _show_change(version: Version, output: Format) -> None:
    if output is Format.JSON:
        as_json_line(plain(version))
        return
    style = "dim" if version.record is None else None
    title = f"{version.kind.name:<16} {names.joined(version.key)}"
    line(f"{version.at:%H:%M:%S.%f}"[:-3] + f"  {version.sequence:>7}  {title}  {summary(version.record)}", style)
