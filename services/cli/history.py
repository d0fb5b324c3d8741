"""`steer history`: the deployments of an environment, phase by phase."""

from typing import Annotated

import typer

from services.cli import names, presence
from services.cli.deploy import EnvironmentName
from services.cli.exits import Failed
from services.cli.output import Format, Output, as_json, line, say, table
from services.cli.reading import several
from services.cli.session import DEFAULT_DATA, Data, run
from shared import subjects
from shared.model.deployment import Deployment
from shared.runtime.bus import Bus
from shared.subjects import Key


def command(
    environment: EnvironmentName,
    deployment: Annotated[str, typer.Argument(metavar="DEPLOYMENT", help="Its id; left out, a list of all.")] = "",
    *,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Show an environment's deployments, or every phase of one: when, how long, and why."""
    key = names.environment_key(environment)
    if deployment:
        names.key_of(subjects.DEPLOYMENT, f"{environment}/{deployment}")

    async def work(bus: Bus) -> None:
        found = await find(bus, key)
        if deployment:
            chosen = next((each for each in found if each[0] == deployment), None)
            if chosen is None:
                await presence.environment(bus, key)
                raise Failed(f"Deployment {environment}/{deployment}: there is none")
            _show_one(chosen, output)
            return
        if not found:
            await presence.environment(bus, key)
        if output is Format.JSON:
            as_json([{"id": id, **record.model_dump(mode="json")} for id, record in found])
        elif not found:
            say(f"there is no deployment of {environment}")
        else:
            _show_list(found)

    run(work, data)


async def find(bus: Bus, environment: Key) -> list[tuple[str, Deployment]]:
    """Ids and records, the newest request first."""
    versions = await several(bus, subjects.DEPLOYMENT, environment)
    found = [(version.key[3], version.record) for version in versions if isinstance(version.record, Deployment)]
    return sorted(found, key=lambda each: each[1].requested_at_sequence, reverse=True)


def _show_list(found: list[tuple[str, Deployment]]) -> None:
    rows = []
    for id, record in found:
        steps = record.transitions
        began = f"{steps[0].at:%Y-%m-%d %H:%M:%S}" if steps else ""
        took = f"{(steps[-1].at - steps[0].at).total_seconds():.1f} s" if steps else ""
        verb = "roll back" if record.rollback else "deploy"
        rows.append((id, verb, record.version, record.phase, began, took, record.error))
    table(["DEPLOYMENT", "", "RELEASE", "PHASE", "BEGAN", "TOOK", ""], rows)


def _show_one(chosen: tuple[str, Deployment], output: Format) -> None:
    id, record = chosen
    if output is Format.JSON:
        as_json({"id": id, **record.model_dump(mode="json")})
        return
    verb = "roll back to" if record.rollback else "deploy"
    before = f", before it release {record.previous}" if record.previous else ""
    line(f"{verb} release {record.version}{before}: {record.phase}", style="bold")
    steps = record.transitions
    ends = [*(step.at for step in steps[1:]), None]
    table(
        ["AT", "PHASE", "FOR", ""],
        (
            (
                f"{step.at:%H:%M:%S.%f}"[:-3],
                step.phase,
                f"{(end - step.at).total_seconds():.1f} s" if end is not None else "",
                step.reason,
            )
            for step, end in zip(steps, ends, strict=True)
        ),
    )
    if not record.terminal and record.deadline is not None:
        line(f"{record.phase} ends by {record.deadline:%H:%M:%S} UTC")
