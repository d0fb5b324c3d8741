"""HTTP in front of the gate: a request passes, waits, or is refused; then it is forwarded and its place is given back."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

import aiohttp
from aiohttp import web

from services.activator.demand import Counter
from services.activator.forward import Broken, NotConnected, forward
from services.activator.gate import Gate, Pass, Refusal, Ticket
from shared.model.live import Demand
from shared.model.route import HTTPRoute

HOLD_SECONDS = 60.0
ATTEMPTS = 4
STICKY_COOKIE = "steer_sticky"
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
_ANSWERS: dict[Refusal, tuple[int, str, dict[str, str]]] = {
    "no route": (404, "no route\n", {}),
    "no endpoint": (502, "no endpoint\n", {}),
    "full": (503, "too many requests wait\n", {"Retry-After": "2"}),
    "too large": (503, "too large to wait\n", {}),
    "too late": (504, "no replica came up in time\n", {}),
}


@dataclass(slots=True)
class Asked:
    """One request, and what became of it so far. `path` is decoded: by it routes are found."""

    request: web.BaseRequest
    host: str
    path: str
    tried: set[str] = field(default_factory=set)
    counted: bool = False

    @property
    def sticky(self) -> str:
        return self.request.cookies.get(STICKY_COOKIE, "")


class Front:
    """`wake` is told of an environment for which somebody waits, `changed` that the load is another."""

    def __init__(
        self,
        gate: Gate,
        session: aiohttp.ClientSession,
        wake: Callable[[str], None],
        changed: Callable[[], None],
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self.gate = gate
        self.counter = Counter()
        self._session = session
        self._wake = wake
        self._changed = changed
        self._hold_seconds = hold_seconds

    def demand(self) -> dict[str, Demand]:
        parked = {name: len(queue) for name, queue in self.gate.waiting.items()}
        return self.counter.sample(self.gate.busy, parked, asyncio.get_running_loop().time())

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Let it in and forward it; where the endpoint cannot be reached, let it in again, for another one."""
        asked = Asked(request, request.host, unquote(request.raw_path.partition("?")[0]))
        reason = ""
        for _ in range(ATTEMPTS):
            entered = await self._enter(asked)
            if isinstance(entered, web.Response):
                return entered
            try:
                return await self._forward(asked, entered)
            except (NotConnected, Broken) as error:
                reason = f"{entered.endpoint.address}: {error}\n"
                asked.tried.add(entered.endpoint.address)
                if isinstance(error, Broken) and (request.method not in _REPEATABLE or request.body_exists):
                    break
        return web.Response(status=502, text=reason)

    async def _enter(self, asked: Asked) -> Pass | web.Response:
        length, avoid = asked.request.content_length or 0, frozenset(asked.tried)
        entered = self.gate.enter(asked.host, asked.path, length, asked.sticky, avoid)
        if isinstance(entered, HTTPRoute):
            self._arrived(asked, entered.environment)
            entered = await self._wait(asked, entered)
        elif isinstance(entered, Pass):
            self._arrived(asked, entered.environment)
        elif entered == "full":
            self._turn_away(asked)
        return entered if isinstance(entered, Pass) else _refuse(entered)

    async def _wait(self, asked: Asked, route: HTTPRoute) -> Pass | Refusal:
        told: asyncio.Future[Pass | Refusal] = asyncio.get_running_loop().create_future()
        ticket = Ticket(asked.host, asked.path, route.environment, told.set_result, asked.sticky)
        self.gate.wait(ticket)
        self._notice(route.environment)
        if route.cold:
            self._wake(route.environment)
        try:
            async with asyncio.timeout(self._hold_seconds):
                return await asyncio.shield(told)
        except TimeoutError:
            self.gate.give_up(ticket)
            return told.result() if told.done() else "too late"
        except asyncio.CancelledError:  # the client has gone
            self.gate.give_up(ticket)
            if told.done() and isinstance(given := told.result(), Pass):
                self.gate.leave(given)
            raise
        finally:
            self._notice(route.environment)

    async def _forward(self, asked: Asked, given: Pass) -> web.StreamResponse:
        clock = asyncio.get_running_loop().time
        began, status = clock(), 502
        try:
            response = await forward(self._session, asked.request, given.endpoint.address, self._cookie(asked, given))
            status = response.status
            return response
        except asyncio.CancelledError:  # the client has gone
            status = 499
            raise
        finally:
            self.gate.leave(given)
            self.counter.answered(given.environment, status, clock() - began)
            self._notice(given.environment)

    def _arrived(self, asked: Asked, environment: str) -> None:
        if not asked.counted:
            asked.counted = True
            self.counter.arrived(environment, datetime.now(UTC))
        self._notice(environment)

    def _turn_away(self, asked: Asked) -> None:
        route = self.gate.find(asked.host, asked.path)
        if route is not None:
            self._arrived(asked, route.environment)
            self.counter.turned_away(route.environment)
            self._changed()

    def _notice(self, environment: str) -> None:
        total = self.gate.busy.get(environment, 0) + self.gate.parked(environment)
        if self.counter.noticeable(environment, total):
            self._changed()

    def _cookie(self, asked: Asked, given: Pass) -> str:
        route = self.gate.find(asked.host, asked.path)
        if route is None or route.middleware is None or not route.middleware.sticky_sessions:
            return ""
        return f"{STICKY_COOKIE}={given.endpoint.assignment}; Path=/; HttpOnly"


def _refuse(refusal: Refusal) -> web.Response:
    status, text, headers = _ANSWERS[refusal]
    return web.Response(status=status, text=text, headers=headers)
