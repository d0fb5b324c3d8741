"""What routes knows: the facts that it reads, the records that it wrote, and which of them may no longer fit together.

Every record is reduced to the few facts that routes depend on, so most versions of an instance or an assignment change
nothing here. Where a fact does change, the **dirty** set remembers what has to be looked at again: an own record, or an
environment with everything that leads to it. What is dirty is only ever looked at, never believed: a record that turns
out as it was is no change.

Facts and own records depend on the versions folded, not on their order. `dirty`, `changed_at` and `quiet` only say when
to look; a state that was just loaded looks at everything.

An environment without a record is held (its active release goes on being served); only a tombstone ends its routes.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from sortedcontainers import SortedDict

from shared.model.assignment import Desired
from shared.model.deployment import ActiveRelease
from shared.model.domain import Domain
from shared.model.environment import RateLimit
from shared.model.route import FunctionRoute, HostRoutes, InternalService, L4Route, Routed, RouteManifest
from shared.model.run import PortSpec
from shared.model.service import Notice
from shared.service import Version
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    DOMAIN,
    ENVIRONMENT,
    INSTANCE,
    KINDS,
    NODE,
    NODE_STATUS,
    PLACEMENT,
    POOL,
    RELEASE,
    Key,
    Kind,
)

At = TypeVar("At")
What = TypeVar("What")

SERVICE = "routes"
QUIET = timedelta(milliseconds=20)

HOST_CONFLICT = "host_conflict"
IMPLICIT_HOST_CONFLICT = "implicit_host_conflict"
PORT_CONFLICT = "port_conflict"
TOO_LARGE = "route_too_large"

FOREIGN: frozenset[Kind] = frozenset(
    {ENVIRONMENT, RELEASE, DOMAIN, ACTIVE, ASSIGNMENT, INSTANCE, NODE, NODE_STATUS, POOL, PLACEMENT},
)
"""The kinds that routes reads and does not write."""

Env = Key
Item = tuple[str, Key]
"""The name of a kind and a key: an own record, or an environment with all that leads to it."""

Place = tuple[str, str]
"""Node and assignment id."""

Ports = tuple[tuple[str, int], ...]
"""What a replica has bound: names and numbers. As a dictionary it would take twice as much."""

# What there is one of per record is a named tuple: a frozen dataclass takes four times as long to make.

Route = HostRoutes | L4Route | InternalService | FunctionRoute


class Policy(NamedTuple):
    """What a release says about routes. It is frozen with the release, so an edited environment changes nothing."""

    ports: tuple[PortSpec, ...] = ()
    scale_to_zero: bool = False
    max_concurrency: int = 0
    rate_limit: RateLimit | None = None

    @property
    def default_port(self) -> str:
        """The first HTTP port, else the first, else `http`."""
        names = [port.name for port in self.ports if port.protocol == "http"] or [port.name for port in self.ports]
        return names[0] if names else "http"


class Replica(NamedTuple):
    """An assignment. `drain` is the sequence of its present version if that asks to drain, else 0.

    `env` is the key of its workload: three tokens of an environment, or four of a pool. `port` names the port on which
    functions are called, where it is a pool's.
    """

    env: Env | None
    release: str
    deployment: str
    desired: Desired
    drain: int
    port: str = ""


class Loaded(NamedTuple):
    """What a pool host that is up says: its ports, and the members that are ready."""

    ports: Ports
    members: frozenset[str]


class Active(NamedTuple):
    sequence: int
    record: ActiveRelease


class Written(NamedTuple):
    """A route record of our own as it is published, and what it adds to the digest.

    The bytes, since the record would take six times the memory, and is hardly ever asked for.
    """

    body: bytes
    term: int


class Mark(NamedTuple):
    """`number` counts the marks ever made, 0 is that of an own record; `cause` is the sequence of what led to it."""

    number: int
    cause: int


@dataclass(slots=True)
class State:
    cluster_domain: str = ""
    sequences: dict[str, dict[Key, int]] = field(default_factory=lambda: {kind.name: {} for kind in KINDS})
    tombstones: deque[Item] = field(default_factory=deque)
    covers: int = 0

    environments: dict[Env, bool] = field(default_factory=dict)
    policies: dict[Key, Policy] = field(default_factory=dict)
    domains: dict[Key, Domain] = field(default_factory=dict)
    actives: dict[Env, Active] = field(default_factory=dict)
    replicas: dict[Place, Replica] = field(default_factory=dict)
    bound: dict[Place, Ports] = field(default_factory=dict)
    loaded: dict[Place, Loaded] = field(default_factory=dict)
    pools: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    placed: dict[Key, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)

    replicas_of: dict[Env, set[Place]] = field(default_factory=dict)
    pools_of: dict[Key, set[Key]] = field(default_factory=dict)
    replicas_on: dict[str, set[Place]] = field(default_factory=dict)
    domains_of: dict[Env, set[Key]] = field(default_factory=dict)
    domains_at: dict[Key, set[Key]] = field(default_factory=dict)
    claims: dict[Env, frozenset[Item]] = field(default_factory=dict)
    claimants: dict[Item, set[Env]] = field(default_factory=dict)

    written: dict[Item, Written] = field(default_factory=dict)
    digest: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    routed: dict[Env, Routed] = field(default_factory=dict)
    routed_version: int = 0
    notices: dict[Item, dict[Key, Notice]] = field(default_factory=dict)
    manifest: RouteManifest | None = None
    closed_sequence: int = 0
    published_at: datetime | None = None

    dirty: SortedDict[Item, Mark] = field(default_factory=SortedDict)
    dirty_environments: dict[Env, Mark] = field(default_factory=dict)
    marks: int = 0
    changed_at: datetime | None = None
    quiet: bool = True

    def exists(self, env: Env) -> bool:
        active = self.actives.get(env)
        return self.environments.get(env, active is not None and active.record.version != "")

    def policy(self, env: Env) -> Policy:
        """What the release that serves says; nothing where none serves."""
        active = self.actives.get(env)
        return self.policies.get((*env, active.record.version), _NO_POLICY) if active else _NO_POLICY

    def implicit_host(self, env: Env) -> str:
        """`<app>-<environment>.<cluster domain>`; empty without a cluster domain or where the label would be too long."""
        label = f"{env[1]}-{env[2]}"
        return f"{label}.{self.cluster_domain}" if self.cluster_domain and len(label) <= 63 else ""


_NO_POLICY = Policy()


def number_of(ports: Ports, name: str) -> int | None:
    """The number of a port; None where it is not bound."""
    for bound, number in ports:
        if bound == name:
            return number
    return None


def domain_env(key: Key, domain: Domain) -> Env:
    """The environment that a domain leads to."""
    app, _, environment = domain.environment.partition("/")
    return key[0], app, environment


def touch(state: State, items: Collection[Item], version: Version) -> None:
    """Something that these own records depend on has changed."""
    if items:
        _changed(state, version.at)
        for item in items:
            state.marks += 1
            state.dirty[item] = _renewed(state.dirty.get(item), state.marks, version)


def touch_environment(state: State, env: Env, version: Version) -> None:
    """Something has changed that everything which leads to the environment depends on."""
    _changed(state, version.at)
    state.marks += 1
    state.dirty_environments[env] = _renewed(state.dirty_environments.get(env), state.marks, version)


def _changed(state: State, at: datetime) -> None:
    before = state.changed_at
    if not state.dirty and not state.dirty_environments:
        state.quiet = before is None or at - before >= QUIET
    if before is None or at > before:
        state.changed_at = at


def _renewed(before: Mark | None, number: int, version: Version) -> Mark:
    """The item has to be looked at, also if a look at it is under way."""
    sequence = version.sequence
    return Mark(number, sequence if before is None or before.cause < sequence else before.cause)


def drop(index: dict[At, set[What]], at: At, what: What) -> None:
    """Take `what` out of an index, and the entry with it once it is empty."""
    if at in index:
        index[at].discard(what)
        if not index[at]:
            del index[at]
