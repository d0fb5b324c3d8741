"""What every service writes about itself: `Term`, `DecisionRecord`, `Notice`; and `Rejection`, the quarantine's entry."""

from typing import Annotated, Any, Literal

from pydantic import Field

from shared.model.base import Record, Time

Severity = Literal["info", "warning", "error"]


class Term(Record):
    """`steer.term.<service>`: opens a term of leadership. Its sequence is the fence of every commit of that term."""

    holder: str
    lease_revision: int
    opened_at: Time


class DecisionRecord(Record):
    """`steer.decision.<service>.<about>.<key>`: why things are as they are.

    Every record that the service reads up to `read_sequence` had been received or acknowledged when it decided. With
    `now` and the `observation`, the state at that sequence gives the same decision again.
    """

    read_sequence: int
    now: Time
    outcome: str
    reasons: dict[str, Any] = Field(default_factory=dict)
    observation: dict[str, Any] = Field(default_factory=dict)
    changes: tuple[str, ...] = ()


class Notice(Record):
    """`steer.notice.<service>.<kind>.<key>`: an event for people, raised once per episode; deleted when it ends."""

    severity: Severity
    message: str
    at: Time
    fields: dict[str, Any] = Field(default_factory=dict)


class Rejection(Record):
    """`STEER_REJECTED`, `steer.rejected.<subject>`: a message that could not be read, with the reason and the body.

    `body` is the text of the message, or base64 where it is not UTF-8, cut to 64 KiB (`body_bytes` is its size).
    """

    subject: str
    sequence: int
    kept_by: str
    problems: tuple[str, ...]
    restored_sequence: int
    received_at: Time
    body: str = ""
    body_encoding: Literal["utf-8", "base64"] = "utf-8"
    body_bytes: Annotated[int, Field(ge=0)] = 0
