"""Plain reads and writes of records, for doers and the CLI. They carry no fence; a service commits (`commit`) instead.

A write that timed out is tried again with the same `Nats-Msg-Id`, so that it is stored once.
"""

import asyncio
import base64
import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from sys import intern
from typing import Any, cast

import nats.errors
import orjson
from pydantic import BaseModel

from shared import codec, subjects
from shared.errors import Conflict, InvalidRecord, InvalidSubject, RequestRefused, SteerError, Unavailable
from shared.runtime import parts
from shared.runtime.bus import Bus
from shared.runtime.encode import EXPECTED, OPERATION, RESTORES, is_tombstone, restores_in
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.headers import RawHeaders, any_of
from shared.runtime.jetstream import NO_MESSAGE, SEQUENCE, TIME, ApiError, api, direct_get
from shared.runtime.traces import TRACEPARENT
from shared.service import Version
from shared.subjects import STREAM, Key, Kind

WRONG_LAST_SEQUENCE = 10071
NOT_READY = "503"
"""The code of a refusal that is none of the request: the leader has changed, or there is too much to do."""

ATTEMPTS = 6
ATTEMPT_SECONDS = 2.0
PAUSE_SECONDS = 0.25

_meant = any_of(OPERATION, RESTORES, TRACEPARENT).search
_version = cast("Callable[[tuple[Any, ...]], Version]", partial(tuple.__new__, Version))  # at half of its cost


def version_of(message: Message) -> Version:
    """The version that a message carries. Raises `InvalidRecord` or `InvalidSubject`."""
    if is_plain(message.headers):
        return plain_version(message)
    kind, key = _key_of(message.subject)
    record = None if is_tombstone(message.headers) else parts.read(kind, key, message.body)
    restores = restores_in(message.headers, message.sequence)
    return Version(kind, key, message.sequence, record, message.at, restores)


def _key_of(subject: str) -> tuple[Kind, Key]:
    kind, key = subjects.parse(subject)
    return kind, tuple(map(intern, key))  # a node or an app is in the keys of many records


def is_plain(headers: Mapping[str, str] | None) -> bool:
    """Whether a message is a record and nothing else: no tombstone, no answer, of no trace. Nearly all are."""
    return headers is None or (type(headers) is RawHeaders and _meant(headers.raw) is None)


def plain_version(message: Message) -> Version:
    """`version_of` a message that is plain."""
    kind, key = _key_of(message.subject)
    record = parts.read(kind, key, message.body)
    return _version((kind, key, message.sequence, record, message.at, 0))


async def put(bus: Bus, kind: Kind, key: Key, record: BaseModel | None, *, expected: int | None = None) -> int:
    """Publish a record (None = a tombstone); returns its sequence.

    `expected` is the last sequence that its subject must have, 0 = none. Raises `Conflict` where it has another,
    `InvalidRecord` for a record that is too large, `Unavailable` when the log does not answer.
    """
    kind.check(key)
    subject = kind.subject(*key)
    headers = {"Nats-Msg-Id": uuid.uuid4().hex}
    if record is None:
        headers[OPERATION] = "delete"
    if expected is not None:
        headers[EXPECTED] = str(expected)
    body = b"" if record is None else codec.encode(record)
    reason = "no answer"
    for _ in range(ATTEMPTS):
        try:
            answer = orjson.loads((await bus.request(subject, body, headers, ATTEMPT_SECONDS)).data)
        except (nats.errors.NoRespondersError, nats.errors.OutboundBufferLimitError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
        except (OSError, nats.errors.Error) as error:
            raise Unavailable(f"{subject} was not stored: {error or type(error).__name__}") from error
        else:
            if "error" not in answer:
                return int(answer["seq"])
            reason = _refusal(subject, expected, answer["error"])
        await asyncio.sleep(PAUSE_SECONDS)
    raise Unavailable(f"{subject} was not stored in {ATTEMPTS} attempts: {reason}")


def _refusal(subject: str, expected: int | None, error: Mapping[str, Any]) -> str:
    """Why a write may be tried again. Raises `Conflict` where that makes no sense."""
    if error.get("err_code") == WRONG_LAST_SEQUENCE:
        raise Conflict(f"{subject} has another last version than {expected}: {error.get('description')}")
    return f"{error.get('description')} ({error.get('err_code')})"


async def get(bus: Bus, kind: Kind, key: Key, at: int | None = None) -> Version | None:
    """The last version of a record, a tombstone included; None where there was none.

    With `at` the one that ruled at that sequence of the log, as far back as it was not trimmed: what could not be read
    never ruled. Without it, raises `InvalidRecord` where the last one cannot be read.
    """
    kind.check(key)
    subject = kind.subject(*key)
    if at is not None:
        return _ruling(await history(bus, subject), at)
    message = await last_message(bus, subject)
    return None if message is None else version_of(message)


def _ruling(messages: Sequence[Message], at: int) -> Version | None:
    for message in reversed(messages):
        if message.sequence <= at:
            with contextlib.suppress(InvalidRecord, InvalidSubject):
                return version_of(message)
    return None


async def last_message(bus: Bus, subject: str) -> Message | None:
    """The last message of a subject, as it lies in the log."""
    return await _stored(bus, {"last_by_subj": subject})


async def get_own(bus: Bus, kind: Kind, key: Key) -> Version | None:
    """Like `get`, for who may read only some subjects. Any replica of the log answers, also one a moment behind."""
    kind.check(key)
    subject = kind.subject(*key)
    answer = await direct_get(bus, STREAM, subject)
    if answer is None:
        return None
    headers = answer.headers or {}
    at = datetime.fromisoformat(headers[TIME])
    return version_of(Message(subject, int(headers[SEQUENCE]), at, headers, answer.data))


async def _stored(bus: Bus, question: Mapping[str, Any]) -> Message | None:
    try:
        answer = await api(bus, f"STREAM.MSG.GET.{STREAM}", question)
    except ApiError as error:
        if error.code == NO_MESSAGE:
            return None
        raise
    return stored_message(answer["message"])


def stored_message(fields: Mapping[str, Any]) -> Message:
    """A message as the JetStream API shows it."""
    return Message(
        subject=fields["subject"],
        sequence=int(fields["seq"]),
        at=datetime.fromisoformat(fields["time"]),
        headers=_headers(base64.b64decode(fields["hdrs"])) if fields.get("hdrs") else None,
        body=base64.b64decode(fields.get("data", "")),
    )


def _headers(raw: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in raw.decode(errors="replace").split("\r\n")[1:] if line)
    return {name.strip(): value.strip() for name, _, value in pairs}


async def history(bus: Bus, subject: str, start: int = 1) -> list[Message]:
    """Every version of a subject that is kept, oldest first, from the sequence `start` on."""
    # A token may be a literal `*`, which a filter takes for any token.
    return [message for message in await _drain(bus, [subject], start) if message.subject == subject]


async def load(bus: Bus, filters: Sequence[str]) -> list[Version]:
    """The last version of each subject; tombstones are left out, and what cannot be read is skipped."""
    versions = []
    for message in await _drain(bus, filters, start=None):
        try:
            version = version_of(message)
        except (InvalidRecord, InvalidSubject):
            continue
        if version.record is not None:
            versions.append(version)
    return versions


async def _drain(bus: Bus, filters: Sequence[str], start: int | None) -> list[Message]:
    """What a follower gets until it has caught up, the last version of a subject that was written meanwhile included."""
    follower = Follower(bus, filters, start=start)
    await follower.start()
    take_back = bus.on_closed(follower.poke)
    messages: list[Message] = []
    try:
        while not follower.caught_up:
            if bus.closed.is_set():
                raise Unavailable(f"the connection of {bus.name} is gone for good")
            batch = await follower.next(ATTEMPT_SECONDS * ATTEMPTS)
            if isinstance(batch, Restarted):
                messages.clear()
            elif not batch and not follower.caught_up:
                raise Unavailable(f"the log does not answer a load of {', '.join(filters)}")
            else:
                messages.extend(batch)
    finally:
        take_back()
        await follower.stop()
    if start is not None:
        return messages
    return list({message.subject: message for message in messages}.values())


async def request(bus: Bus, subject: str, body: Mapping[str, Any], within: float) -> dict[str, Any]:
    """Ask a micro endpoint. Raises `RequestRefused` with its reason, `Unavailable` where nobody answers."""
    try:
        answer = await bus.request(subject, orjson.dumps(body), within=within)
    except nats.errors.NoRespondersError as error:
        raise Unavailable(f"nobody answers {subject}: is the service running?") from error
    except (TimeoutError, OSError, nats.errors.Error) as error:
        raise Unavailable(f"no answer to {subject} in {within:g} s: {error or type(error).__name__}") from error
    headers = answer.headers or {}
    if "Nats-Service-Error" in headers:
        raise RequestRefused(headers["Nats-Service-Error"], not_now=headers.get("Nats-Service-Error-Code") == NOT_READY)
    try:
        reply = orjson.loads(answer.data)
    except orjson.JSONDecodeError as error:
        raise SteerError(f"{subject} answered what is not JSON: {error}") from error
    return dict(reply)
