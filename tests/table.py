"""Route tables for tests of what is rendered from them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from shared.model.route import Endpoint, FunctionRoute, HostRoutes, HTTPRoute, InternalService, L4Route

BCRYPT = "$2b$04$abcdefghijklmnopqrstuuMFdJu9yVgmagVAIC24fOZkaFqd3s9JC"
"""The hash of the password `a`."""


@dataclass
class Table:
    hosts: dict[str, HostRoutes] = field(default_factory=dict)
    l4: dict[int, L4Route] = field(default_factory=dict)
    internal: dict[str, InternalService] = field(default_factory=dict)
    functions: dict[str, FunctionRoute] = field(default_factory=dict)


def endpoints(*addresses: str) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(assignment=f"web-{index}", node="n1", address=address) for index, address in enumerate(addresses)
    )


def route(hostname: str, prefix: str = "", *addresses: str, **fields: object) -> HTTPRoute:
    values = {"environment": "shop/web/production", "hostname": hostname, "path_prefix": prefix, **fields}
    return HTTPRoute.model_validate({**values, "endpoints": endpoints(*addresses)})


def table(routes: Iterable[HTTPRoute], *ports: L4Route) -> Table:
    hosts: dict[str, HostRoutes] = {}
    for each in routes:
        before = hosts.get(each.hostname)
        all_of_it = (*(before.routes if before else ()), each)
        longest_first = tuple(sorted(all_of_it, key=lambda one: (-len(one.path_prefix), one.path_prefix)))
        hosts[each.hostname] = HostRoutes(hostname=each.hostname, routes=longest_first)
    return Table(hosts, {port.public_port: port for port in ports})
