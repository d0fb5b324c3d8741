"""`steer volume move`, `steer snapshot` and `steer snapshots`: where data lies, and its copies."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from ulid import ULID

from services.cli import edit, names, presence
from services.cli.deploy import EnvironmentName
from services.cli.exits import Failed
from services.cli.output import Format, Output, age, as_json, say, table
from services.cli.reading import several
from services.cli.session import DEFAULT_DATA, Data, run
from shared import subjects
from shared.model.snapshot import SnapshotOrder, SnapshotReport
from shared.model.volume import Volume, VolumeStatus
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import Key

VolumeName = Annotated[str, typer.Argument(metavar="VOLUME", help="The name of the volume in the run spec.")]

volume = typer.Typer(help="Pin volumes to nodes.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One order and what its node says of it."""

    node: str
    volume: str
    id: str
    order: SnapshotOrder
    report: SnapshotReport | None

    @property
    def plain(self) -> dict[str, Any]:
        names = {"node": self.node, "volume": self.volume, "id": self.id}
        return {**names, "order": self.order, "report": self.report}


@volume.command("move")
def move(
    environment: EnvironmentName,
    name: VolumeName,
    *,
    to: Annotated[str, typer.Option(metavar="NODE", help="Where the volume is wanted.")],
    declare_lost: Annotated[
        bool,
        typer.Option("--declare-lost", help="The node it is on is lost for good: do not wait for its confirmation."),
    ] = False,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Pin an environment's volumes to another node. Its replica stops, and starts there; the data is yours to move."""
    key = names.key_of(subjects.VOLUME, f"{environment}/{name}")
    names.key_of(subjects.NODE, to)

    async def work(bus: Bus) -> None:
        status = await _standing(bus, key)
        node = await records.get(bus, subjects.NODE, (to,))
        if node is None or node.record is None:
            raise Failed(f"Node {to}: there is none")
        fields = {"node": to, "lost_node": status.node if declare_lost else None}
        text = f"volume {names.joined(key)} moves from {status.node} to {to}"
        edited = await edit.edit(
            bus, subjects.VOLUME, key, Volume, lambda record: record.model_copy(update=fields), new=Volume()
        )
        if edited.changed and status.node != to:
            say(f"the data does not move with it: what is on {status.node} stays there")
        edit.show(edited, text, output)

    run(work, data)


def snapshot(
    environment: EnvironmentName, name: VolumeName, *, data: Data = DEFAULT_DATA, output: Output = Format.TEXT
) -> None:
    """Ask for a snapshot of a volume now."""
    key = names.key_of(subjects.VOLUME, f"{environment}/{name}")
    request = str(ULID()).lower()

    async def work(bus: Bus) -> None:
        await _standing(bus, key)
        edited = await edit.edit(
            bus,
            subjects.VOLUME,
            key,
            Volume,
            lambda record: record.model_copy(update={"snapshot_request": request}),
            new=Volume(),
        )
        edit.show(edited, f"snapshot r-{request} of {names.joined(key)} is requested", output)

    run(work, data)


def snapshots(
    environment: EnvironmentName,
    name: Annotated[str, typer.Argument(metavar="VOLUME", help="Left out: all volumes of the environment.")] = "",
    *,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """List the snapshots of an environment's volumes, the newest first, and why each is kept."""
    key = names.environment_key(environment)
    if name:
        names.key_of(subjects.VOLUME, f"{environment}/{name}")

    async def work(bus: Bus) -> None:
        found = await find(bus, key, name)
        if not found:
            await (presence.volume(bus, (*key, name)) if name else presence.environment(bus, key))
        if output is Format.JSON:
            as_json([each.plain for each in found])
        elif not found:
            say(f"there is no snapshot of {environment}{'/' if name else ''}{name}")
        else:
            _show(found)

    run(work, data)


async def find(bus: Bus, environment: Key, volume: str = "") -> list[Snapshot]:
    """The snapshots of one volume or of all, the newest first."""
    wanted = (*environment, volume) if volume else environment
    reports = {version.key: version.record for version in await several(bus, subjects.SNAPSHOT_REPORT, ())}
    found = []
    for version in await several(bus, subjects.SNAPSHOT_ORDER, ()):
        if version.key[1 : 1 + len(wanted)] != wanted or not isinstance(version.record, SnapshotOrder):
            continue
        report = reports.get(version.key)
        assert report is None or isinstance(report, SnapshotReport)
        found.append(Snapshot(version.key[0], version.key[4], version.key[5], version.record, report))
    return sorted(found, key=lambda each: (each.order.slot, each.id), reverse=True)


async def _standing(bus: Bus, key: Key) -> VolumeStatus:
    """Where a volume is. Raises `Failed` for one that no replica has been started with."""
    version = await records.get(bus, subjects.VOLUME_STATUS, key)
    if version is None or not isinstance(version.record, VolumeStatus):
        raise Failed(f"Volume {names.joined(key)}: there is none, no replica has been started with it")
    return version.record


def _show(found: list[Snapshot]) -> None:
    now = datetime.now(UTC)
    table(
        ["VOLUME", "SNAPSHOT", "STATE", "AGE", "NODE", "SIZE", ""],
        (
            (
                each.volume,
                each.id,
                each.order.state,
                age(each.order.slot, now),
                each.node,
                _size(each.report.size_bytes) if each.report is not None and each.report.size_bytes else "",
                ", ".join(each.order.keep_reasons) or each.order.error,
            )
            for each in found
        ),
    )


def _size(count: int) -> str:
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
