"""Writing the whole snapshot: what runs beside the leader of routes. The only part of routes that does I/O.

The head carries the sequence of the head that it replaces as its expectation, so of two writers one is refused; it reads
what is there, and writes only a higher version. A deposed leader can at most repeat what the log already held.
"""

import asyncio
import base64
import time
import uuid
from collections.abc import Sequence
from typing import Any

import orjson
import structlog

from services.routes.snapshot import Taken, due_at, pack, pieces, take
from services.routes.state import State
from shared import codec
from shared.errors import InvalidRecord, SteerError
from shared.model.route import RouteSnapshot
from shared.runtime import reactions
from shared.runtime.bus import Bus
from shared.runtime.encode import EXPECTED, SERVICE, TERM
from shared.runtime.instance import Instance
from shared.runtime.jetstream import NO_MESSAGE, ApiError, api
from shared.runtime.reactions import Reaction
from shared.subjects import ROUTE_SNAPSHOT, SNAPSHOT_STREAM

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.25
RETRY_SECONDS = 5.0
ROUTES_AT_A_TIME = 50


class Refused(SteerError):
    """Somebody else has written a head meanwhile."""


async def write_snapshots(instance: Instance) -> None:
    """For ever: write what is due while this instance leads."""
    pending: dict[int, tuple[float, float]] = {}
    done = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        state: State = instance.world.state
        version = state.manifest.version if state.manifest else 0
        if not instance.leader.leading or version == done:
            pending.clear()
            continue
        now = time.monotonic()
        first = min((since for since, _ in pending.values()), default=now)
        last = pending[version][1] if version in pending else now
        pending = {version: (first, last)}
        if now < due_at(first, last):
            continue
        try:
            done = await write(instance) or done
        except Exception as error:
            if reactions.to_error(error) is not Reaction.RETRY:
                raise
            reason = str(error) or type(error).__name__
            log.warning("the route snapshot was not written; trying again", version=version, reason=reason)
            await asyncio.sleep(RETRY_SECONDS)


async def write(instance: Instance) -> int:
    """Write the routes in force; returns the version that is there by then, 0 while none is closed."""
    async with instance.world.lock.reader:
        taken = take(instance.world.state)
    if taken is None:
        return 0
    body = await _json(taken)
    messages = await asyncio.to_thread(pack, taken.version, taken.digest, body)
    head, sequence = await read_head(instance.bus)
    if head is not None and head.version >= taken.version:
        return taken.version
    headers = {SERVICE: instance.service.name, TERM: str(instance.leader.term), EXPECTED: str(sequence)}
    await _store(instance.bus, messages, headers)
    log.info("route snapshot written", version=taken.version, messages=len(messages))
    return taken.version


async def _json(taken: Taken) -> bytes:
    """Written a few routes at a time: the next version must not wait for megabytes."""
    parts: list[bytes] = []
    for part in pieces(taken):
        parts.append(part)
        if len(parts) % ROUTES_AT_A_TIME == 0:
            await asyncio.sleep(0)
    return b"".join(parts)


async def read_head(bus: Bus) -> tuple[RouteSnapshot | None, int]:
    """The head in force, None where there is none or it cannot be read; and its sequence, 0 where there is none."""
    try:
        answer = await api(bus, f"STREAM.MSG.GET.{SNAPSHOT_STREAM}", {"last_by_subj": ROUTE_SNAPSHOT})
    except ApiError as error:
        if error.code == NO_MESSAGE:
            return None, 0
        raise
    message = answer["message"]
    try:
        head = codec.validate(RouteSnapshot, ROUTE_SNAPSHOT, base64.b64decode(message.get("data", "")))
    except InvalidRecord:
        return None, int(message["seq"])
    return head, int(message["seq"])


async def _store(bus: Bus, messages: Sequence[tuple[str, bytes]], headers: dict[str, str]) -> None:
    """All of them or none; the expectation in `headers` is the head's, which is the last."""
    *chunks, (subject, body) = messages
    batch, last = {"Nats-Batch-Id": uuid.uuid4().hex}, {}
    if chunks:
        last = {**batch, "Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
    for number, (chunk_subject, chunk) in enumerate(chunks, start=1):
        await bus.publish(chunk_subject, chunk, {**batch, "Nats-Batch-Sequence": str(number)})
    answer: dict[str, Any] = orjson.loads((await bus.request(subject, body, {**headers, **last}, within=10)).data)
    if "error" in answer:
        raise Refused(f"{subject}: {answer['error'].get('description')} ({answer['error'].get('err_code')})")
