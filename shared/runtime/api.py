"""Questions to a service: endpoints of the NATS micro framework on `steer.api.<service>.<verb>`.

Any instance that has loaded the log answers, the leader or not. A request is a JSON object; `at_least_sequence` in it
makes the instance wait until it has read the log that far. The reply is `{ok, sequence, result}`, where `sequence` is
the version of the world that the result was computed at; or an error of the framework with a clear text.

A request has limits: its size and depth (`question_in`), and how many are being answered at once. One that names no inbox
for its answer gets none.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import nats.micro
import orjson
import structlog
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, Service, ServiceConfig
from pydantic import BaseModel

from shared import subjects
from shared.errors import SteerError
from shared.runtime.bus import Bus
from shared.runtime.lease import monotonic
from shared.runtime.records import NOT_READY
from shared.runtime.world import World
from shared.service import Query

log = structlog.get_logger(__name__)

VERSION = "0.1.0"
WAIT_SECONDS = 5.0
MAX_QUESTION_BYTES = 64 * 1024
MAX_DEPTH = 16
MOST_ASKED = 1000
MAX_SEQUENCE = 2**63
LOOK_SECONDS = 0.01
BAD_REQUEST, FAULT = "400", "500"


class Api:
    """`start` registers the service's queries, `stop` takes them back."""

    def __init__(self, bus: Bus, world: World) -> None:
        self._bus = bus
        self._world = world
        self._service: Service | None = None
        self._asked: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        name = self._world.service.name
        config = ServiceConfig(name=f"steer-{name}", version=VERSION, description=f"Questions to {name}.")
        self._service = await nats.micro.add_service(self._bus.nc, config)
        for verb, query in self._world.service.queries.items():
            await self._service.add_endpoint(
                EndpointConfig(name=verb, subject=subjects.api(name, verb), handler=self._handler(verb, query))
            )

    async def stop(self) -> None:
        for task in list(self._asked):
            task.cancel()
        if self._service is not None and self._bus.connected.is_set():
            try:
                await self._service.stop()
            except Exception as error:  # the connection went away meanwhile
                log.debug("could not take the endpoints back", error=str(error))

    def _handler(self, verb: str, query: Query) -> Any:
        async def handle(request: Request) -> None:
            if not answerable(request):
                return
            if len(self._asked) >= MOST_ASKED:
                await request.respond_error(NOT_READY, "too many requests are being answered; ask again")
                return
            # The client takes one request after the other; one that waits for the log must not hold up the rest.
            task = asyncio.create_task(self._handle(verb, query, request))
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)

        return handle

    async def _handle(self, verb: str, query: Query, request: Request) -> None:
        try:
            reply = await self._answer(query, request.data)
            self._bus.check_size(request.subject, reply, 0)
        except _NotReady as error:
            await request.respond_error(NOT_READY, str(error))
        except SteerError as error:
            await request.respond_error(BAD_REQUEST, one_line(error))
        except Exception as error:
            log.exception("a query failed", verb=verb)
            await request.respond_error(FAULT, f"{verb} failed: {one_line(error)}")
        else:
            await request.respond(reply)

    async def _answer(self, query: Query, data: bytes) -> bytes:
        question, at_least = question_in(data)
        await self._wait_until(at_least)
        world = self._world
        async with world.lock.reader:
            sequence = world.sequences.read_sequence
            result = query(world.state, question, world.clock.now(monotonic()))
        return orjson.dumps({"ok": True, "sequence": sequence, "result": dict(result)}, default=plain)

    async def _wait_until(self, sequence: int) -> None:
        deadline = monotonic() + WAIT_SECONDS
        while not self._world.loaded or self._world.sequences.read_sequence < sequence:
            if monotonic() > deadline:
                if not self._world.loaded:
                    raise _NotReady("the log has not been loaded yet")
                raise _NotReady(f"the log was read up to {self._world.sequences.read_sequence}, not up to {sequence}")
            await asyncio.sleep(LOOK_SECONDS)


class _NotReady(Exception):
    pass


def answerable(request: Request) -> bool:
    """Whether the request names an inbox for its answer; another subject the bus has taken out."""
    return bool(request._msg.reply)


def question_in(data: bytes) -> tuple[dict[str, Any], int]:
    """The request, and the sequence that the log has to be read up to. Raises `SteerError` for one beyond the limits."""
    if len(data) > MAX_QUESTION_BYTES:
        raise SteerError(f"the request has {len(data)} bytes; at most {MAX_QUESTION_BYTES} are read")
    try:
        question = orjson.loads(data) if data.strip() else {}
    except orjson.JSONDecodeError as error:
        raise SteerError(f"the request is not JSON: {error}") from None
    if not isinstance(question, dict):
        raise SteerError("the request is not a JSON object")
    if _is_deeper(question, MAX_DEPTH):
        raise SteerError(f"the request is nested more than {MAX_DEPTH} deep")
    at_least = question.pop("at_least_sequence", 0)
    if type(at_least) is not int or not 0 <= at_least < MAX_SEQUENCE:
        raise SteerError("at_least_sequence is not a sequence")
    return question, at_least


def _is_deeper(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(each, levels - 1) for each in inside)


def plain(value: Any) -> Any:
    """What orjson does not know: records, and tuples inside mappings that are not dicts."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a reply may not hold {type(value).__name__}")


def one_line(error: Exception) -> str:
    """An error as a header can carry it."""
    return " ".join((str(error) or type(error).__name__).split())[:2000]
