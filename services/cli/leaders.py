"""Who leads each service: the lease says who tries, the term who can. And where the log ends."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from shared import subjects
from shared.model.service import Term
from shared.runtime.bus import Bus
from shared.runtime.jetstream import NO_MESSAGE, ApiError, api
from shared.runtime.records import load, stored_message
from shared.subjects import LEASE_BUCKET, STREAM

DECIDERS = ("scheduler", "pooler", "builder", "routes")
"""The services that decide; each is `python -m services.<name>`."""

NO_STREAM = 10059


@dataclass(frozen=True, slots=True)
class Leader:
    """`holder` has opened the term of this sequence; `holds_lease` is false while nobody renews it."""

    service: str
    holder: str
    term: int
    since: datetime | None
    holds_lease: bool


async def leaders(bus: Bus) -> list[Leader]:
    """One for each service, the last one where nobody leads now."""
    terms = {version.key[0]: version for version in await load(bus, [subjects.TERM.subject_filter])}
    found = []
    for service in sorted({*DECIDERS, *terms}):
        version = terms.get(service)
        term = version.record if version else None
        holder = await lease_holder(bus, service)
        if version is None or not isinstance(term, Term):
            found.append(Leader(service, holder, 0, None, False))
            continue
        found.append(Leader(service, term.holder, version.sequence, version.at, holder == term.holder))
    return found


async def lease_holder(bus: Bus, service: str) -> str:
    """Empty where nobody holds the lease, or there is no bucket yet."""
    question = {"last_by_subj": f"$KV.{LEASE_BUCKET}.{service}"}
    try:
        answer: dict[str, Any] = await api(bus, f"STREAM.MSG.GET.KV_{LEASE_BUCKET}", question)
    except ApiError as error:
        if error.code in {NO_MESSAGE, NO_STREAM}:
            return ""
        raise
    body = stored_message(answer["message"]).body
    return str(orjson.loads(body).get("holder", "")) if body else ""


async def last_sequence(bus: Bus) -> int:
    """The sequence at which the log ends."""
    answer = await api(bus, f"STREAM.INFO.{STREAM}")
    return int(answer["state"]["last_seq"])
