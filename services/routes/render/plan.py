"""What is to be served, in the order of matching, with everything that has not its form left out.

`Site` is one route: a host and a prefix. `name` is derived from both, so it stays the same from version to version;
`path` is the prefix decoded, as requests are compared with it.

`internal` are the sites of the internal listener. A service is `<app>.<environment>.<project>.internal`, which leads to
its first port, and `<port name>.` before it for each of them; the functions of a namespace are the paths
`/function/<name>` of `functions.<namespace>.internal`. Nothing there is cold: what has no endpoint is answered 503.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_network
from typing import Literal, Protocol
from urllib.parse import unquote

from pydantic import BaseModel

from services.routes.render.options import Options
from shared.model.domain import BasicAuth, Middleware
from shared.model.environment import RateLimit
from shared.model.route import Endpoint, FunctionRoute, HostRoutes, HTTPRoute, InternalService, L4Route

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOSTNAME = re.compile(rf"(\*\.)?({_LABEL}\.)*{_LABEL}")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*")
_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f\ufffd]+)*")
_ADDRESS = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]):([1-9][0-9]{0,4})")
_BCRYPT = re.compile(r"\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{53}")
_USERNAME = re.compile(r"[^\x00-\x1f\x7f:\ud800-\udfff]{1,256}")
_CODE = 16


class Routes(Protocol):
    """A table of routes; `shared.runtime.follow.RouteVersion` is one."""

    @property
    def hosts(self) -> Mapping[str, HostRoutes]: ...
    @property
    def l4(self) -> Mapping[int, L4Route]: ...
    @property
    def internal(self) -> Mapping[str, InternalService]: ...
    @property
    def functions(self) -> Mapping[str, FunctionRoute]: ...


@dataclass(frozen=True, slots=True)
class Site:
    """One route. `to`: its endpoints, an activator, or nobody.

    An allowlist of None lets everyone in, an empty one nobody. `auth` is None where nobody is asked, and `Closed` where
    nobody can be let in, because what was asked for makes no sense.
    """

    name: str
    hostname: str
    prefix: str
    path: str
    environment: str
    to: Literal["endpoints", "activator", "nobody"]
    endpoints: tuple[Endpoint, ...]
    middleware: Middleware
    allowlist: tuple[str, ...] | None
    auth: "BasicAuth | Closed | None"
    rate_limit: RateLimit | None


@dataclass(frozen=True, slots=True)
class Closed:
    """Authentication that nobody passes."""


@dataclass(frozen=True, slots=True)
class Port:
    number: int
    environment: str
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What one record is to be served as, in the order of matching. `left_out` says what of it is not served."""

    sites: tuple[Site, ...] = ()
    ports: tuple[Port, ...] = ()
    internal: tuple[Site, ...] = ()
    left_out: tuple[str, ...] = ()


def records(routes: Routes) -> Iterator[tuple[str, BaseModel]]:
    """Every record of a table, each with a name of its own."""
    for kind in ("hosts", "l4", "internal", "functions"):
        for name, record in getattr(routes, kind).items():
            yield f"{kind} {name}", record


def part(record: BaseModel, options: Options) -> Part:
    left_out: list[str] = []
    sites: tuple[Site, ...] = ()
    ports: tuple[Port, ...] = ()
    internal: tuple[Site, ...] = ()
    match record:
        case HostRoutes():
            sites = _distinct(_sites(record, options, left_out))
        case L4Route():
            ports = tuple(_ports(record, options, left_out))
        case InternalService() if options.internal:
            internal = _distinct(_internal(_service(record), left_out))
        case FunctionRoute() if options.internal:
            internal = _distinct(_internal(_function(record), left_out))
    return Part(sites, ports, internal, tuple(left_out))


def _distinct(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Of several with one name, the first."""
    found: dict[str, Site] = {}
    for site in sites:
        found.setdefault(site.name, site)
    return tuple(found.values())


def _sites(host: HostRoutes, options: Options, left_out: list[str]) -> Iterator[Site]:
    for route in sorted(host.routes, key=lambda route: (-len(route.path_prefix), route.path_prefix)):
        where = shown(f"{host.hostname}{route.path_prefix}")
        if len(host.hostname) > 253 or not _HOSTNAME.fullmatch(host.hostname):
            left_out.append(f"{where}: not a hostname")
        elif not _is_prefix(route.path_prefix):
            left_out.append(f"{where}: not a path prefix")
        else:
            yield _site(host.hostname, route, options, where, left_out)


def _is_prefix(prefix: str) -> bool:
    """Also once it is decoded: no segment climbs or is empty, and no encoded slash makes two of one."""
    path = unquote(prefix)
    return bool(_PREFIX.fullmatch(prefix) and _PATH.fullmatch(path)) and path.count("/") == prefix.count("/")


def _site(hostname: str, route: HTTPRoute, options: Options, where: str, left_out: list[str]) -> Site:
    held = route.cold or route.via_activator
    endpoints = () if held else tuple(_endpoints(route.endpoints, where, left_out))
    if held and not options.activators:
        left_out.append(f"{where}: wants an activator, and none is known")
    middleware = route.middleware or Middleware()
    limit = route.rate_limit
    return Site(
        name=f"r{code(hostname, route.path_prefix)}",
        hostname=hostname,
        prefix=route.path_prefix,
        path=unquote(route.path_prefix),
        environment=route.environment,
        to=("activator" if options.activators else "nobody") if held else "endpoints" if endpoints else "nobody",
        endpoints=endpoints,
        middleware=middleware,
        allowlist=_allowlist(middleware, where, left_out),
        auth=_auth(middleware, where, left_out),
        rate_limit=limit if limit is not None and limit.requests_per_second > 0 else None,
    )


def _ports(route: L4Route, options: Options, left_out: list[str]) -> Iterator[Port]:
    number = route.public_port
    if route.protocol != "tcp":
        left_out.append(f"port {number}: {route.protocol} is not forwarded")
    elif not 0 < number < 65_536 or number in options.reserved_ports:
        left_out.append(f"port {number}: taken by the proxy itself, or no port")
    else:
        yield Port(number, route.environment, tuple(_endpoints(route.endpoints, f"port {number}", left_out)))


_Named = tuple[str, str, str, tuple[Endpoint, ...] | None]


def _internal(named: Iterable[_Named], left_out: list[str]) -> Iterator[Site]:
    for hostname, prefix, environment, endpoints in named:
        where = shown(f"{hostname}{prefix}")
        if endpoints is None:
            left_out.append(f"{where}: udp is not forwarded")
        elif len(hostname) > 253 or not _HOSTNAME.fullmatch(hostname) or not _is_prefix(prefix):
            left_out.append(f"{where}: not a name")
        else:
            yield _inside(hostname, prefix, environment, tuple(_endpoints(endpoints, where, left_out)))


def _service(service: InternalService) -> Iterator[_Named]:
    name, first = service.fqdn.rstrip("."), True
    for port in service.ports:
        endpoints = port.endpoints if port.protocol == "tcp" else None
        yield f"{port.name}.{name}", "", service.environment, endpoints
        if first and endpoints is not None:
            yield name, "", service.environment, endpoints
            first = False


def _function(route: FunctionRoute) -> Iterator[_Named]:
    yield f"functions.{route.namespace}.internal", f"/function/{route.function}", "", route.endpoints


def _inside(hostname: str, prefix: str, environment: str, endpoints: tuple[Endpoint, ...]) -> Site:
    return Site(
        name=f"i{code(hostname, prefix)}",
        hostname=hostname,
        prefix=prefix,
        path=unquote(prefix),
        environment=environment,
        to="endpoints" if endpoints else "nobody",
        endpoints=endpoints,
        middleware=Middleware(redirect_https=False),
        allowlist=None,
        auth=None,
        rate_limit=None,
    )


def code(*parts: str) -> str:
    """A name of fixed length for what has these parts."""
    return sha256("".join(parts).encode()).hexdigest()[:_CODE]


def _endpoints(endpoints: tuple[Endpoint, ...], where: str, left_out: list[str]) -> Iterator[Endpoint]:
    seen: set[str] = set()
    for endpoint in endpoints:
        found = _ADDRESS.fullmatch(endpoint.address)
        if found is None or int(found[3]) > 65_535:
            left_out.append(f"{where}: {shown(endpoint.address)} is not an address")
        elif endpoint.address not in seen:
            seen.add(endpoint.address)
            yield endpoint


def _allowlist(middleware: Middleware, where: str, left_out: list[str]) -> tuple[str, ...] | None:
    """Networks in their normal form. What is none lets nobody in."""
    if not middleware.ip_allowlist:
        return None
    found = set()
    for text in middleware.ip_allowlist:
        try:
            network = ip_network(text.strip(), strict=False)
        except ValueError:
            left_out.append(f"{where}: ip_allowlist: {shown(text)} is not a network")
            continue
        if getattr(network.network_address, "scope_id", None):
            left_out.append(f"{where}: ip_allowlist: {shown(text)} has a zone")
        else:
            found.add(str(network))
    return tuple(sorted(found))


def _auth(middleware: Middleware, where: str, left_out: list[str]) -> BasicAuth | Closed | None:
    auth = middleware.basic_auth
    if auth is None:
        return None
    if not _USERNAME.fullmatch(auth.username):
        left_out.append(f"{where}: basic_auth: no client can send this username; nobody is let in")
        return Closed()
    if not _BCRYPT.fullmatch(auth.password_hash):
        left_out.append(f"{where}: basic_auth: the hash is not bcrypt; nobody is let in")
        return Closed()
    return auth


def shown(text: str) -> str:
    """Text of a record for a message: short, on one line, and printable."""
    return text[:80].encode("unicode_escape").decode()
