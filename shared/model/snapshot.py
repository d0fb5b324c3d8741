"""Snapshots of volumes: `SnapshotOrder` and `SnapshotPrune` (owned by the scheduler), `SnapshotReport` (by the agent)."""

from typing import Annotated, Literal

from pydantic import Field

from shared.model.base import Record, Time


class SnapshotOrder(Record):
    """`steer.snapshot_order.<node>.<env>.<volume>.<id>`: make a snapshot by the `deadline`.

    `slot` is the time of the schedule that it is for, or of the request. `keep_reasons` say why it is kept.
    """

    slot: Time
    request: str = ""
    attempt: Annotated[int, Field(ge=1)] = 1
    deadline: Time
    state: Literal["running", "complete", "failed", "timed_out"] = "running"
    finished_at: Time | None = None
    keep_reasons: tuple[str, ...] = ()
    error: str = ""


class SnapshotReport(Record):
    """`steer.snapshot_report.<node>.<env>.<volume>.<id>`: what became of an order. Deleted when the order is gone."""

    state: Literal["running", "complete", "failed"]
    size_bytes: Annotated[int, Field(ge=0)] = 0
    location: str = ""
    error: str = ""
    at: Time


class SnapshotPrune(Record):
    """`steer.snapshot_prune.<node>.<env>.<volume>`: snapshots to delete; their reports are deleted with them."""

    ids: tuple[str, ...] = ()
