"""Simulated visitors: they come to environments and leave, and proxies report them as demand, or hold them and wake.

Every environment has a host of its own name below the cluster's domain. What a proxy serves there says whether a visitor
is answered (in flight) or waits (parked); a host that is cold is woken by an activation, again and again until it is not.
"""

from functools import lru_cache
from random import Random
from typing import Any

import orjson

from shared.model.activation import Activation
from shared.model.assignment import Assignment
from shared.model.live import Demand
from shared.subjects import ACTIVATION, ROUTE_HOST, Key, host_key

from .clock import Timeline
from .faults import Rates
from .log import Log
from .wire import put

CLUSTER_DOMAIN = "apps.test"
BUSY_PERCENT, IDLE_PERCENT = 150.0, 20.0


class Visitors:
    """`here` says how many visitors each proxy has at an environment."""

    def __init__(
        self, log: Log, timeline: Timeline, random: Random, rates: Rates, environments: tuple[Key, ...]
    ) -> None:
        self._log, self._timeline, self._random, self._rates = log, timeline, random, rates
        self._environments = environments
        self.here: dict[Key, int] = {}
        self.busy = True

    def begin(self) -> None:
        for environment in self._environments:
            self._come_or_go(environment)

    def rest(self) -> None:
        """From now on nobody comes and nobody goes."""
        self.busy = False

    def turn(self) -> None:
        """Who was there leaves, and where nobody was somebody comes."""
        for environment, count in self.here.items():
            self.here[environment] = 0 if count else self._random.choice((1, 5))

    def _come_or_go(self, environment: Key) -> None:
        if not self.busy:
            return
        self.here[environment] = self._random.choice((0, 0, 0, 1, 5))
        self._timeline.after(self._random.uniform(10, 40), lambda: self._come_or_go(environment))

    def percent(self, assignment: Assignment) -> float:
        """What a replica uses of its share."""
        environment = tuple(assignment.workload.key.split("/"))
        if assignment.workload.kind != "environment" or environment not in self.here:
            return 0.0
        return BUSY_PERCENT if self.here[environment] else IDLE_PERCENT

    def demand(self, proxy: str, serving: dict[str, bytes]) -> dict[str, Demand]:
        """What a proxy sees of them; it wakes what is cold."""
        found = {}
        for environment, count in self.here.items():
            body = serving.get(_subject(environment)) if count else None
            if body is None:
                continue
            endpoints, cold = _route(body)
            parked = 0 if endpoints else count
            if cold and self._random.random() >= self._rates.lost_sample:
                record = Activation(requested_at=self._timeline.now, parked=parked)
                self._log.publish(put(ACTIVATION, (proxy, *environment), record))
            demand = Demand(inflight=count - parked, parked=parked, last_request_at=self._timeline.now)
            found["/".join(environment)] = demand
        return found


@lru_cache(maxsize=64)
def _subject(environment: Key) -> str:
    _, app, name = environment
    return ROUTE_HOST.subject(*host_key(f"{app}-{name}.{CLUSTER_DOMAIN}"))


@lru_cache(maxsize=4096)
def _route(body: bytes) -> tuple[bool, bool]:
    """Whether the host has an endpoint, and whether it is cold."""
    routes: list[dict[str, Any]] = orjson.loads(body)["routes"]
    return any(route.get("endpoints") for route in routes), any(route.get("cold") for route in routes)
