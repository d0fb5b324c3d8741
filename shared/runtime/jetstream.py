"""Requests to the JetStream API, as JSON.

The client's own configuration classes lack some settings of the server; JSON lacks none.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import nats.errors
import orjson
from nats.aio.msg import Msg

from shared.errors import SteerError, Unavailable
from shared.runtime.bus import Bus

ATTEMPTS = 12
RETRY_SECONDS = 0.25
NO_MESSAGE = 10037
SEQUENCE, TIME = "Nats-Sequence", "Nats-Time-Stamp"


class ApiError(SteerError):
    """JetStream answered with an error; `code` is its error code."""

    def __init__(self, request: str, code: int, description: str) -> None:
        super().__init__(f"{request}: {description} ({code})")
        self.code = code


async def api(bus: Bus, request: str, body: Mapping[str, Any] | None = None, within: float = 5.0) -> dict[str, Any]:
    """One request to `$JS.API`. Raises `ApiError`, or `Unavailable` when JetStream does not answer.

    Where nobody listens (JetStream starts, or elects a leader) it is asked again after a pause.
    """
    answer = await _ask(bus, request, orjson.dumps(body) if body is not None else b"", within)
    return _result(request, answer.data)


async def direct_get(bus: Bus, stream: str, subject: str, within: float = 5.0) -> Msg | None:
    """The last message of a subject, which the right to read this one subject suffices for; None where there is none.

    Any replica of the stream answers, also one that is a moment behind. Raises `Unavailable`.
    """
    request = f"DIRECT.GET.{stream}.{subject}"
    answer = await _ask(bus, request, b"", within)
    status = (answer.headers or {}).get("Status", "")
    if status == "404":
        return None
    if status or SEQUENCE not in (answer.headers or {}):
        raise Unavailable(f"JetStream does not answer {request}: {(answer.headers or {}).get('Description', status)}")
    return answer


async def _ask(bus: Bus, request: str, payload: bytes, within: float) -> Msg:
    for attempt in range(ATTEMPTS):
        try:
            return await bus.request(f"$JS.API.{request}", payload, within=within)
        except nats.errors.NoRespondersError as error:
            if attempt == ATTEMPTS - 1:
                raise Unavailable(f"nobody answers {request}: JetStream is off, or has no leader") from error
            await asyncio.sleep(RETRY_SECONDS)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            raise Unavailable(f"JetStream does not answer {request}: {error or type(error).__name__}") from error
    raise AssertionError("unreachable")


def _result(request: str, body: bytes) -> dict[str, Any]:
    result: dict[str, Any] = orjson.loads(body)
    if "error" in result:
        found = result["error"]
        raise ApiError(request, int(found.get("err_code", 0)), str(found.get("description", "")))
    return result
