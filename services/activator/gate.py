"""The gate: who goes where, who waits, and who is turned away. Pure: no clock, no I/O; randomness is given.

A request enters with its host and path. It passes with an endpoint, waits as a ticket, or gets a refusal. Whoever leaves
an endpoint, and every version of the routes, makes room: `admit` lets in those who can go, the first come first. Since
that is done at once, a newcomer never overtakes one who waits for the same route.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from services.activator.choice import choose
from shared.model.route import Endpoint, HTTPRoute

MAX_PARKED = 100
MAX_BODY_BYTES = 10 * 1024 * 1024

Find = Callable[[str, str], HTTPRoute | None]
"""The route of a host and a path, by the version in force."""

Refusal = Literal["no route", "no endpoint", "full", "too large", "too late"]


@dataclass(frozen=True, slots=True)
class Pass:
    """The request goes to this endpoint; whoever has it `leave`s when it is done."""

    environment: str
    endpoint: Endpoint


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that waits. `admitted` is told what came of it."""

    host: str
    path: str
    environment: str
    admitted: Callable[[Pass | Refusal], None]
    sticky: str = ""


@dataclass(slots=True)
class Gate:
    find: Find
    random: Random
    inflight: dict[str, int] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, deque[Ticket]] = field(default_factory=dict)

    def enter(
        self, host: str, path: str, body_bytes: int = 0, sticky: str = "", avoid: frozenset[str] = frozenset()
    ) -> Pass | Refusal | HTTPRoute:
        """A pass, a refusal, or the route for which the request has to `wait`. `avoid` = addresses that have failed."""
        route = self.find(host, path)
        if route is None:
            return "no route"
        found = self._pass(route, "" if avoid else sticky, avoid)
        if found is not None:
            return found
        if not _holds(route):
            return "no endpoint"
        if body_bytes > MAX_BODY_BYTES:
            return "too large"
        if self.parked(route.environment) >= MAX_PARKED:
            return "full"
        return route

    def wait(self, ticket: Ticket) -> None:
        self.waiting.setdefault(ticket.environment, deque()).append(ticket)

    def give_up(self, ticket: Ticket) -> None:
        """The ticket waits no more: its time is over, or the client has gone."""
        queue = self.waiting.get(ticket.environment)
        if queue is not None and ticket in queue:
            queue.remove(ticket)
            if not queue:
                del self.waiting[ticket.environment]

    def leave(self, given: Pass) -> None:
        """The request is done; its place is free."""
        _less(self.inflight, given.endpoint.address)
        _less(self.busy, given.environment)
        self.admit([given.environment])

    def admit(self, environments: Iterable[str] | None = None) -> None:
        """Let in whoever can go now; without names, of every environment."""
        for environment in list(self.waiting if environments is None else environments):
            queue = self.waiting.get(environment)
            if queue is None:
                continue
            left = self._admit(queue)
            if left:
                self.waiting[environment] = left
            else:
                del self.waiting[environment]

    def _admit(self, queue: deque[Ticket]) -> deque[Ticket]:
        """Those who go on waiting. Of a route that is full, nobody else is asked."""
        left: deque[Ticket] = deque()
        closed: set[tuple[str, str]] = set()
        for ticket in queue:
            route = self.find(ticket.host, ticket.path)
            if route is None or not (_holds(route) or route.endpoints):
                ticket.admitted("no endpoint")
                continue
            name = (route.hostname, route.path_prefix)
            found = None if name in closed else self._pass(route, ticket.sticky)
            if found is not None:
                ticket.admitted(found)
                continue
            closed.add(name)
            left.append(ticket)
        return left

    def _pass(self, route: HTTPRoute, sticky: str, avoid: frozenset[str] = frozenset()) -> Pass | None:
        bound = next((each for each in route.endpoints if each.assignment == sticky), None) if sticky else None
        endpoint = bound or choose(route.endpoints, self.inflight, route.max_concurrency, self.random, avoid)
        if endpoint is None:
            return None
        self.inflight[endpoint.address] = self.inflight.get(endpoint.address, 0) + 1
        self.busy[route.environment] = self.busy.get(route.environment, 0) + 1
        return Pass(route.environment, endpoint)

    def parked(self, environment: str) -> int:
        return len(self.waiting.get(environment, ()))

    def cold(self, environment: str) -> bool:
        """Whether somebody waits for it and it has no endpoint at all."""
        routes = (self.find(ticket.host, ticket.path) for ticket in self.waiting.get(environment, ()))
        return any(route is not None and route.cold for route in routes)


def _holds(route: HTTPRoute) -> bool:
    """Cold, or full: its requests wait."""
    return route.cold or (route.max_concurrency > 0 and bool(route.endpoints))


def _less(counts: dict[str, int], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
