"""`steer events`: what the services tell people, the notices that stand and, followed, those that come and go."""

from contextlib import aclosing
from typing import Annotated

import typer

from services.cli import names, presence
from services.cli.leaders import last_sequence
from services.cli.output import Format, Output, as_json_line, line, say
from services.cli.reading import plain, several
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.world import from_now_on
from shared import subjects
from shared.model.service import Notice
from shared.runtime.bus import Bus
from shared.service import Version

STYLES = {"warning": "yellow", "error": "red"}


def command(
    about: Annotated[
        str, typer.Argument(metavar="THING", help="Only what is about this: a node, project/app/environment, …")
    ] = "",
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Show what the services tell people: the notices that stand, the oldest first."""
    wanted = names.thing_key(about)

    async def work(bus: Bus) -> None:
        seen = await last_sequence(bus)
        standing = [version for version in await several(bus, subjects.NOTICE, ()) if _is_about(version, wanted)]
        for version in sorted(standing, key=lambda version: version.sequence):
            _show(version, output)
            seen = max(seen, version.sequence)
        if not standing and not follow and wanted:
            await presence.anything(bus, wanted)
        if follow:
            await _follow(bus, seen, wanted, output)
        elif not standing:
            say("there is nothing to tell")

    run(work, data)


def _is_about(version: Version, wanted: tuple[str, ...]) -> bool:
    """Behind the service and the kind of a notice is the key of what it is about."""
    return version.key[2 : 2 + len(wanted)] == wanted


async def _follow(bus: Bus, seen: int, wanted: tuple[str, ...], output: Format) -> None:
    async with aclosing(from_now_on(bus, [subjects.NOTICE.subject_filter], seen)) as versions:
        async for version in versions:
            if _is_about(version, wanted):
                _show(version, output)


def _show(version: Version, output: Format) -> None:
    if output is Format.JSON:
        as_json_line(plain(version))
        return
    service, kind, *key = version.key
    title = f"{version.at:%Y-%m-%d %H:%M:%S}  {service}  {kind}"
    if isinstance(version.record, Notice):
        line(f"{title}  {version.record.severity}: {version.record.message}", STYLES.get(version.record.severity))
    else:
        line(f"{title}  {names.joined(tuple(key))}: over", "dim")
