"""Route records, owned by routes: what proxies follow. `Routed` tells the scheduler what the routes have taken in."""

from typing import Annotated, Literal

from pydantic import Field

from shared.model.base import Record
from shared.model.domain import Middleware
from shared.model.environment import RateLimit


class Endpoint(Record):
    """One healthy replica: `address` is `host:port`."""

    assignment: str
    node: str
    address: str


class HTTPRoute(Record):
    """Requests for `hostname` whose path starts with the segments of `path_prefix`.

    `domain`: the `project/name` of the domain that it comes from; empty for an environment's implicit host.
    `cold`: scaled to zero and no endpoint: the proxy publishes an `Activation` and holds the request.
    `via_activator`: all its traffic goes through an activator, so that its demand is known.
    """

    hostname: str
    path_prefix: str = ""
    domain: str = ""
    environment: str
    middleware: Middleware | None = None
    endpoints: tuple[Endpoint, ...] = ()
    cold: bool = False
    via_activator: bool = False
    max_concurrency: int = 0
    rate_limit: RateLimit | None = None
    route_generation: int = 0


class HostRoutes(Record):
    """`steer.route.host.<hostname, tokens reversed>`: every route of one hostname, longest prefix first."""

    hostname: str
    routes: tuple[HTTPRoute, ...] = ()


class L4Route(Record):
    """`steer.route.l4.<port>`: a public port and the replicas behind it."""

    public_port: int
    protocol: Literal["tcp", "udp"]
    environment: str
    endpoints: tuple[Endpoint, ...] = ()


class InternalPort(Record):
    name: str
    port: int
    protocol: Literal["tcp", "udp"]
    endpoints: tuple[Endpoint, ...] = ()


class InternalService(Record):
    """`steer.route.internal.<env>`: how other services reach this one. `fqdn` is `app.environment.project.internal.`"""

    fqdn: str
    environment: str
    ports: tuple[InternalPort, ...] = ()


class FunctionRoute(Record):
    """`steer.route.function.<namespace>.<function>`: the pool workers in which the function is ready."""

    namespace: str
    function: str
    pool: str
    endpoints: tuple[Endpoint, ...] = ()


class RouteManifest(Record):
    """`steer.route.manifest`: closes a version. `covers`: all that routes reads up to this sequence was taken in.

    `digest` is the sum modulo 2^256, in 64 hex digits, of SHA-256(subject, 0x00, payload) over all route records.
    `format` names the layout in which these were written.
    """

    version: Annotated[int, Field(ge=0)]
    covers: int
    digest: str
    format: str = ""
    hosts: int = 0
    l4_ports: int = 0
    internal_services: int = 0
    functions: int = 0


class Routed(Record):
    """`steer.routed.environment.<env>`, `steer.routed.pool.<pool>`: what a route version has taken in of a workload.

    `drains` maps an assignment to the sequence of its drain; all of it is true for proxies at `version` or later.
    """

    active_sequence: int = 0
    drains: dict[str, int] = Field(default_factory=dict)
    version: int


class RouteSnapshot(Record):
    """`steer.snapshot.routes`: the whole in one message. With `chunks`, the lists are in that many messages beside it."""

    version: int
    digest: str
    chunks: int = 0
    http_routes: tuple[HTTPRoute, ...] = ()
    l4_routes: tuple[L4Route, ...] = ()
    internal_services: tuple[InternalService, ...] = ()
    function_routes: tuple[FunctionRoute, ...] = ()
    cert_hosts: tuple[str, ...] = ()
