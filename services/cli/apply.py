"""`steer apply`: all documents are valid, or none is published; each write expects the version that was looked at."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from services.cli import manifests, names, outcome
from services.cli.exits import Refused
from services.cli.manifests import Manifest
from services.cli.output import Format, Output, as_json, line, say
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.world import readable
from shared import subjects
from shared.errors import Conflict
from shared.model.function import Function
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Message

Action = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one document. `sequence` is that of the version which then rules."""

    manifest: Manifest
    action: Action
    sequence: int


def command(
    *,
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="A file, a directory, or - for the standard input.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written; write nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until what was written is in effect.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)] = 120,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Publish manifests: whatever users may say is wanted.

    A document's `kind` is the class of its record, `name` the tokens of its subject joined by /, every other key the
    body. Every mistake of every document is printed, and nothing is published while there is one.
    """
    valid = _validated(files)

    async def work(bus: Bus) -> None:
        steps = await apply(bus, valid, dry_run=dry_run)
        _show(steps, output, dry_run=dry_run)
        if wait and not dry_run:
            await outcome.wait_for(bus, [(step.manifest, step.sequence) for step in steps], timeout)

    run(work, data)


def _validated(files: Sequence[str]) -> list[Manifest]:
    """The manifests. Raises `Refused` with every mistake, one a line."""
    valid, mistakes = manifests.check(manifests.sources_of(files, sys.stdin))
    if mistakes:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise Refused(*map(str, mistakes), f"{count}; nothing was published")
    if not valid:
        raise Refused(f"{', '.join(files)}: no document in it")
    return valid


async def apply(bus: Bus, valid: Sequence[Manifest], *, dry_run: bool = False) -> list[Step]:
    """Publish what differs from what is there. Raises `Conflict` where somebody else wrote in between."""
    steps = [_step(manifest, await _last(bus, manifest)) for manifest in valid]
    return steps if dry_run else [await publish(bus, step) for step in steps]


async def _last(bus: Bus, manifest: Manifest) -> Message | None:
    """The last message of the subject, also one that cannot be read: a correction replaces it."""
    return await records.last_message(bus, manifest.kind.subject(*manifest.key))


def _step(manifest: Manifest, last: Message | None) -> Step:
    if last is None:
        return Step(manifest, "created", 0)
    version = readable(last)
    if version is None:
        return Step(manifest, "updated", last.sequence)
    if version.record is None:
        return Step(manifest, "created", last.sequence)
    if version.record == manifest.record:
        return Step(manifest, "unchanged", last.sequence)
    if manifest.kind is subjects.RELEASE:
        raise Conflict(f"{_place(manifest)}: a release never changes; this one is new under another version")
    return Step(manifest, "updated", last.sequence)


async def publish(bus: Bus, step: Step) -> Step:
    """Write what a step says, if nobody has written since. Raises `Conflict`."""
    if step.action == "unchanged":
        return step
    manifest = step.manifest
    try:
        sequence = await records.put(bus, manifest.kind, manifest.key, manifest.record, expected=step.sequence)
    except Conflict as conflict:
        raise Conflict(f"{_place(manifest)}: {conflict}; what came before it was published") from None
    return Step(manifest, step.action, sequence)


def _place(manifest: Manifest) -> str:
    return f"{manifest.source}, document {manifest.document}: {manifest.title}"


def _show(steps: Sequence[Step], output: Format, *, dry_run: bool) -> None:
    for step in steps:
        record = step.manifest.record
        for text in record.scaling.unmet if isinstance(record, Function) else ():
            say(f"{step.manifest.title}: {text}", "yellow")
    if output is Format.JSON:
        as_json([_plain(step, dry_run) for step in steps])
        return
    for step in steps:
        would = " (dry run)" if dry_run else ""
        line(f"{step.manifest.title}: {step.action}{would}", style="dim" if step.action == "unchanged" else None)


def _plain(step: Step, dry_run: bool) -> dict[str, object]:
    manifest = step.manifest
    return {
        "source": manifest.source,
        "document": manifest.document,
        "kind": manifest.kind.name,
        "name": names.joined(manifest.key),
        "subject": manifest.kind.subject(*manifest.key),
        "action": step.action,
        "dry_run": dry_run,
        "sequence": step.sequence,
    }
