"""Requests that change something: the leader alone takes them, and answers after its commit.

The endpoints are there while the term is. A request is decided like a pass, and stored by a commit of its own with its
explanation; its answer is computed from the state after that, at once or after a later pass. What is still waiting when
the term ends is told so, and asks the next leader.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import nats.micro
import orjson
import structlog
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, Service, ServiceConfig
from ulid import ULID

from shared import subjects
from shared.errors import SteerError
from shared.runtime.answers import Outcome, Stored
from shared.runtime.api import (
    BAD_REQUEST,
    FAULT,
    VERSION,
    WAIT_SECONDS,
    answerable,
    one_line,
    plain,
    question_in,
)
from shared.runtime.bus import Bus
from shared.runtime.lease import monotonic
from shared.runtime.records import NOT_READY
from shared.runtime.world import World
from shared.service import Command, Decision

log = structlog.get_logger(__name__)

MOST_WAITING = 1000
REQUEST = "request"
"""What an observation calls the request that a decision answers."""

LONGEST_WAIT_SECONDS = 24 * 3600

Commit = Callable[[Decision], Awaitable[Outcome]]


@dataclass(eq=False, slots=True)
class _Asked:
    verb: str
    question: Mapping[str, Any]
    at_least: int
    request: Request
    decided: bool = False
    since: float = field(default_factory=monotonic)


def observed(decision: Decision, asked: _Asked) -> Decision:
    """A decision with what was asked, so that it can be made again from the log."""
    request = {"verb": asked.verb, **asked.question}
    return decision._replace(observation={**decision.observation, REQUEST: request})


class Commands:
    """`start` and `stop` with a term; `round` when leading: decide what is new, answer what can be answered."""

    def __init__(self, bus: Bus, world: World, wake: Callable[[], None]) -> None:
        self._bus = bus
        self._world = world
        self._wake = wake
        self._service: Service | None = None
        self._waiting: list[_Asked] = []

    async def start(self) -> None:
        name, commands = self._world.service.name, self._world.service.commands
        if not commands or self._service is not None:
            return
        config = ServiceConfig(
            name=f"steer-{name}-leader", version=VERSION, description=f"Requests to {name}'s leader."
        )
        self._service = await nats.micro.add_service(self._bus.nc, config)
        for verb in commands:
            await self._service.add_endpoint(
                EndpointConfig(name=verb, subject=subjects.api(name, verb), handler=self._handler(verb))
            )
        await self._bus.nc.flush()

    async def stop(self) -> None:
        service, self._service = self._service, None
        waiting, self._waiting = self._waiting, []
        try:
            for asked in waiting:
                await asked.request.respond_error(NOT_READY, "the leader has changed; ask again")
            if service is not None and self._bus.connected.is_set():
                await service.stop()
        except Exception as error:  # the connection went away meanwhile
            log.debug("could not take the endpoints back", error=str(error))

    async def round(self, commit: Commit) -> None:
        for asked in list(self._waiting):
            if asked not in self._waiting:
                continue  # the term has ended meanwhile
            try:
                await self._one(asked, commit)
            except SteerError as error:
                await self._refuse(asked, BAD_REQUEST, one_line(error))
            except Exception as error:
                log.exception("a request failed", verb=asked.verb)
                await self._refuse(asked, FAULT, f"{asked.verb} failed: {one_line(error)}")

    async def _one(self, asked: _Asked, commit: Commit) -> None:
        world, command = self._world, self._command(asked.verb)
        if world.sequences.read_sequence < asked.at_least:
            if monotonic() - asked.since > WAIT_SECONDS:
                read = world.sequences.read_sequence
                await self._refuse(asked, NOT_READY, f"the log was read up to {read}, not up to {asked.at_least}")
            return
        if not asked.decided:
            decision = command.decide(world.state, asked.question, world.clock.now(monotonic()))
            if decision is not None and not isinstance(await commit(observed(decision, asked)), Stored):
                return  # nothing was stored: it is decided again
            asked.decided = True
        result = command.answer(world.state, asked.question, world.clock.now(monotonic()))
        if result is not None:
            reply = {"ok": True, "sequence": world.sequences.read_sequence, "result": dict(result)}
            self._waiting.remove(asked)
            await asked.request.respond(orjson.dumps(reply, default=plain))
        elif monotonic() - asked.since > LONGEST_WAIT_SECONDS:
            await self._refuse(asked, NOT_READY, "it took too long; ask again")

    def _forget(self, verb: str, identity: Any) -> None:
        """Who asks again does not wait for the answer to the first asking any more."""
        self._waiting = [each for each in self._waiting if (each.verb, each.question["id"]) != (verb, identity)]

    async def _refuse(self, asked: _Asked, code: str, reason: str) -> None:
        if asked in self._waiting:
            self._waiting.remove(asked)
        await asked.request.respond_error(code, reason)

    def _command(self, verb: str) -> Command:
        command: Command = self._world.service.commands[verb]
        return command

    def _handler(self, verb: str) -> Any:
        async def handle(request: Request) -> None:
            if not answerable(request):
                return
            try:
                question, at_least = question_in(request.data)
            except SteerError as error:
                await request.respond_error(BAD_REQUEST, one_line(error))
                return
            question.setdefault("id", str(ULID()).lower())
            self._forget(verb, question["id"])
            if len(self._waiting) >= MOST_WAITING:
                await request.respond_error(NOT_READY, "too many requests are waiting; ask again")
                return
            self._waiting.append(_Asked(verb, question, at_least, request))
            self._wake()

        return handle
