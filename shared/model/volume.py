"""`Volume`, owned by users and CI, kept by the scheduler; `VolumeStatus`, owned by the scheduler.

A volume is a directory on one node. All volumes of an environment are pinned to the same node; the data does not move
with the pin.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field, StringConstraints

from shared.model.base import Count, Name, Record, Time, Ulid, UserRecord

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


def _schedule(value: str) -> str:
    if value:
        try:
            CronSim(MACROS.get(value, value), datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            raise ValueError(f"not a cron expression of five fields, nor one of {', '.join(MACROS)}: {error}") from None
    return value


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"unknown time zone {value!r}") from None
    return value


class SnapshotPolicy(UserRecord):
    """When snapshots are made and which are kept. An empty `schedule` makes none by itself.

    A slot that was missed is made up for within `starting_deadline_seconds`; several missed ones are one. `keep_last`
    0 = 7; `keep_daily` keeps the newest of each of so many days of the zone.
    """

    schedule: Annotated[str, StringConstraints(max_length=128), AfterValidator(_schedule)] = ""
    timezone: Annotated[str, StringConstraints(max_length=64), AfterValidator(_zone)] = "UTC"
    keep_last: Count = 0
    keep_daily: Count = 0
    starting_deadline_seconds: Annotated[float, Field(ge=10, le=604_800)] = 3600
    timeout_seconds: Annotated[float, Field(ge=1, le=604_800)] = 3600
    paused: bool = False


class Volume(UserRecord):
    """`steer.volume.<env>.<name>`: `snapshot_request`, a new ULID, asks for one snapshot now; `node` asks for another
    pin; `lost_node` declares the node lost that it names, so that its confirmation is not waited for."""

    snapshot_policy: SnapshotPolicy | None = None
    snapshot_request: Ulid | None = None
    node: Name | None = None
    lost_node: Name | None = None


class VolumeStatus(Record):
    """`steer.volume_status.<env>.<name>`: the pin. `holder` is the assignment that may use it, `volume_epoch` the number
    below which an agent refuses to start one. Slots up to `slots_until` are done with."""

    node: str
    state: Literal["active", "node_lost"] = "active"
    volume_epoch: Annotated[int, Field(ge=0)] = 0
    holder: str = ""
    slots_until: Time | None = None
    request_done: str = ""
