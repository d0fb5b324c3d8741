"""What serves an environment: the policy of its active release, and the endpoints of each of its ports.

An endpoint is a replica of the active release and deployment that is meant to run, says that it is healthy, has bound
the port, and stands on a node that is not down. Because only the active release counts, changing it is the atomic switch
of traffic. A replica that drains is no endpoint, while it keeps running.
"""

from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from services.routes.world import Active, Env, Place, Policy, State, number_of
from shared.model.route import Endpoint

MAX_ENDPOINTS = 4096
"""Of one port in one route. Replicas beyond these run, but get no traffic."""

_BY_ASSIGNMENT = itemgetter(1, 0)


@dataclass(slots=True)
class Serving:
    """An environment as seen in one pass; each port's endpoints are worked out once."""

    state: State
    env: Env
    policy: Policy
    active: Active | None
    places: tuple[Place, ...]
    _by_port: dict[str, tuple[Endpoint, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "/".join(self.env)

    @property
    def route_generation(self) -> int:
        return self.active.record.route_generation if self.active else 0

    def endpoints(self, port: str) -> tuple[Endpoint, ...]:
        """Sorted by assignment; the first `MAX_ENDPOINTS`, so that a route fits in a message."""
        if port not in self._by_port:
            bound = ((place, number_of(self.state.bound[place], port)) for place in self.places)
            found = (endpoint(self.state, place, number) for place, number in bound if number is not None)
            self._by_port[port] = tuple(islice(found, MAX_ENDPOINTS))
        return self._by_port[port]


def endpoint(state: State, place: Place, port: int) -> Endpoint:
    """A replica that is reached at the address of its node."""
    host = state.addresses[place[0]]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Endpoint(assignment=place[1], node=place[0], address=address)


@dataclass(slots=True)
class View:
    """The state as one pass looks at it: what serves an environment is worked out once, however many hosts lead there."""

    state: State
    _serving: dict[Env, Serving] = field(default_factory=dict)

    def of(self, env: Env) -> Serving:
        if env not in self._serving:
            self._serving[env] = serving(self.state, env)
        return self._serving[env]


def serving(state: State, env: Env) -> Serving:
    active = state.actives.get(env)
    places: list[Place] = []
    if not _unserved(state, env, active):
        places = [place for place in state.replicas_of.get(env, ()) if not _hindrance(state, active, place)]
        places.sort(key=_BY_ASSIGNMENT)
    return Serving(state, env, state.policy(env), active, tuple(places))


def obstacle(state: State, env: Env, place: Place) -> str:
    """Why the replica is no endpoint of its environment, whatever the port; empty if it is one."""
    active = state.actives.get(env)
    return _unserved(state, env, active) or _hindrance(state, active, place)


def _unserved(state: State, env: Env, active: Active | None) -> str:
    """Why no replica of the environment is an endpoint."""
    if not state.exists(env):
        return "the environment is deleted"
    if active is None or not active.record.version:
        return "no release is active"
    return ""


def _hindrance(state: State, active: Active | None, place: Place) -> str:
    """Why this one of them is none."""
    assert active is not None, "nothing serves without an active release"
    replica, release, deployment = state.replicas[place], active.record.version, active.record.deployment
    if replica.release != release:
        return f"release {replica.release} is not active, {release} is"
    if deployment and replica.deployment != deployment:
        return f"deployment {replica.deployment or '(none)'} is not active, {deployment} is"
    if replica.desired != "run":
        return f"it is to {replica.desired}"
    if place not in state.bound:
        return "it is not healthy"
    if place[0] in state.down:
        return f"node {place[0]} is down"
    if place[0] not in state.addresses:
        return f"node {place[0]} has no record, so its address is not known"
    return ""
