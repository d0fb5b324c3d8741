"""The streams and the bucket, as data, and how they are made sure of.

Ensuring is idempotent and only adds: subjects that are missing, flags that are off. It never removes a subject, lowers a
limit or turns a flag off, so two versions of Steersman can run side by side. The configuration is sent as JSON, so that
a setting which the client does not know is neither lost nor reset.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from shared import subjects
from shared.errors import Unavailable
from shared.runtime.bus import Bus
from shared.runtime.jetstream import ApiError, api

NANOS = 1_000_000_000
DAY = 86_400 * NANOS
MARKER_SECONDS = 60
"""How long a key's expiry stays visible: longer than a standby may be deaf."""

NOT_FOUND = 10059
NAME_IN_USE = 10058
STORE_RACE = 10049
"""A stream created right after one of its name was deleted can fail once, while the server clears the directory."""

ATTEMPTS = 20
RETRY_SECONDS = 0.25
INFO_SECONDS = 2.0
"""A server that has just started may drop a question without a word."""

_FLAGS = ("allow_atomic", "allow_direct", "allow_msg_ttl", "allow_rollup_hdrs", "deny_delete")

Config = Mapping[str, Any]


def world_subjects() -> list[str]:
    """The subjects of `STEER`, enumerated from the kinds, so that nothing else can be published into the log."""
    return [kind.subject_filter for kind in subjects.KINDS]


_COMMON: Config = {"retention": "limits", "storage": "file", "discard": "old"}

DECLARATIONS: tuple[Config, ...] = (
    {
        "name": subjects.STREAM,
        "description": "the world and its history",
        "subjects": world_subjects(),
        "max_msgs_per_subject": -1,
        "discard": "new",  # whoever caps it all the same has writes refused, and no version dropped
        "allow_atomic": True,
        "allow_direct": True,
        "deny_delete": True,
    },
    {
        "name": subjects.SNAPSHOT_STREAM,
        "description": "the routes as a whole, the last one only",
        "subjects": [subjects.SNAPSHOT_SUBJECTS],
        "max_msgs_per_subject": 1,
        "allow_atomic": True,
        "allow_direct": True,
        "deny_delete": True,
    },
    {
        "name": subjects.LIVE_STREAM,
        "description": "telemetry",
        "subjects": [subjects.LIVE_SUBJECTS],
        "storage": "memory",
        "max_msgs_per_subject": 1,
        "max_age": 300 * NANOS,
        "allow_direct": True,
    },
    {
        "name": subjects.LOG_STREAM,
        "description": "build logs",
        "subjects": [subjects.LOG_SUBJECTS],
        "max_age": 7 * DAY,
        "max_bytes": 256 * 1024**2,
        "allow_direct": True,
    },
    {
        "name": subjects.REJECTED_STREAM,
        "description": "messages that could not be read, with the reason",
        "subjects": [subjects.REJECTED_SUBJECTS],
        "max_age": 30 * DAY,
        "allow_direct": True,
        "deny_delete": True,
    },
    {
        "name": f"KV_{subjects.LEASE_BUCKET}",
        "description": "who tries to lead",
        "subjects": [f"$KV.{subjects.LEASE_BUCKET}.>"],
        "discard": "new",
        # One version only: with more, the server raises a key's TTL to that of its marker.
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "subject_delete_marker_ttl": MARKER_SECONDS * NANOS,
    },
)
"""Every stream, and the lease bucket as the stream that it is."""


def declarations(replicas: int) -> tuple[Config, ...]:
    """The configurations for so many copies of each stream."""
    return tuple({**_COMMON, **each, "num_replicas": replicas} for each in DECLARATIONS)


async def ensure(bus: Bus) -> None:
    """Create what is missing and add what is lacking. Raises `SteerError` where the server refuses a configuration."""
    for wanted in declarations(bus.settings.replicas):
        await _ensure_one(bus, wanted)


async def _ensure_one(bus: Bus, wanted: Config) -> None:
    name = wanted["name"]
    for _ in range(ATTEMPTS):
        try:
            found = await api(bus, f"STREAM.INFO.{name}", within=INFO_SECONDS)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            if await _create(bus, wanted):
                return
            await asyncio.sleep(RETRY_SECONDS)
            continue
        lacking = additions(found["config"], wanted)
        if lacking:
            await api(bus, f"STREAM.UPDATE.{name}", {**found["config"], **lacking})
        return
    raise Unavailable(f"stream {name} could not be created in {ATTEMPTS} attempts")


async def _create(bus: Bus, wanted: Config) -> bool:
    """False when somebody else is just creating it, or the server is still clearing an old one away."""
    try:
        await api(bus, f"STREAM.CREATE.{wanted['name']}", wanted)
    except ApiError as error:
        if error.code in (NAME_IN_USE, STORE_RACE):
            return False
        raise
    return True


def additions(found: Config, wanted: Config) -> dict[str, Any]:
    """What has to be added to a configuration that is there: subjects and flags, nothing else."""
    lacking: dict[str, Any] = {}
    missing = [subject for subject in wanted["subjects"] if subject not in found.get("subjects", ())]
    if missing:
        lacking["subjects"] = [*found.get("subjects", ()), *missing]
    for flag in _FLAGS:
        if wanted.get(flag) and not found.get(flag):
            lacking[flag] = True
    return lacking
