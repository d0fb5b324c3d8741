"""`steer routes`: what proxies serve now, and the routes as the configuration of a proxy."""

import asyncio
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated, Any

import typer

from services.cli.exits import Refused, TimedOut
from services.cli.output import Format, Output, as_json, say, table
from services.cli.session import DEFAULT_DATA, Data, run
from services.routes.render import FORMATS, Options
from shared.runtime.bus import Bus
from shared.runtime.follow import RouteVersion, follow_routes

LOAD_SECONDS = 15.0

routes = typer.Typer(help="Show what proxies serve.", no_args_is_help=True)


class Proxy(StrEnum):
    CADDY = "caddy"
    HAPROXY = "haproxy"


@routes.command("list")
def list_(*, data: Data = DEFAULT_DATA, output: Output = Format.TEXT) -> None:
    """List every route of the version in force."""
    version = run(_version, data)
    if output is Format.JSON:
        as_json(_as_json(version))
        return
    say(f"version {version.number}, digest {version.digest[:16]}")
    rows = [
        (
            f"{route.hostname}{route.path_prefix}",
            route.environment,
            "cold" if route.cold else str(len(route.endpoints)),
            "activator" if route.via_activator else "",
        )
        for _, host in sorted(version.hosts.items())
        for route in host.routes
    ]
    rows += [
        (f"port {port}", route.environment, str(len(route.endpoints)), "") for port, route in sorted(version.l4.items())
    ]
    table(("ROUTE", "ENVIRONMENT", "ENDPOINTS", "BY"), rows)


@routes.command("render")
def render(
    *,
    format_: Annotated[Proxy, typer.Option("--format", help="Whose configuration.")],
    http: Annotated[str, typer.Option(help="Where the proxy listens, host:port.")] = ":80",
    https: Annotated[str, typer.Option(help="The same for HTTPS; without it nothing redirects there.")] = "",
    certificates: Annotated[str, typer.Option(help="A directory of .pem files, each a chain and its key.")] = "",
    internal: Annotated[str, typer.Option(help="Where services and functions reach each other, host:port.")] = "",
    activator: Annotated[list[str] | None, typer.Option(help="host:port of an activator; may be repeated.")] = None,
    admin: Annotated[str, typer.Option(help="Caddy's admin API.")] = "127.0.0.1:2019",
    socket: Annotated[str, typer.Option(help="HAProxy's statistics socket.")] = "",
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Print the routes in force as a configuration of Caddy (JSON) or HAProxy. What it leaves out goes to the errors."""
    if https and format_ is Proxy.HAPROXY and not certificates:
        raise Refused("--https needs --certificates with HAProxy")
    listeners = (("http", http), ("https", https), ("internal", internal), ("admin", admin))
    for option, address in (*listeners, *(("activator", each) for each in activator or ())):
        if address and not address.rpartition(":")[2].isdigit():
            raise Refused(f"--{option} {address!r}: not host:port")
    options = Options(http, https, certificates, internal, tuple(activator or ()), admin, socket)
    version = run(_version, data)
    rendered = FORMATS[format_.value](version, options)
    if output is Format.JSON:
        said = {"format": format_.value, "version": version.number, "digest": version.digest}
        as_json({**said, "configuration": rendered.body, "left_out": rendered.left_out})
        return
    typer.echo(rendered.body, nl=False)
    for text in rendered.left_out:
        say(f"steer: not rendered: {text}", style="yellow")


async def _version(bus: Bus) -> RouteVersion:
    versions = follow_routes(bus)
    async with aclosing(versions):
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return await anext(versions)
        except TimeoutError:
            raise TimedOut(f"no complete version of the routes in {LOAD_SECONDS:g} s") from None


def _as_json(version: RouteVersion) -> dict[str, Any]:
    return {
        "version": version.number,
        "digest": version.digest,
        "http_routes": [route for _, host in sorted(version.hosts.items()) for route in host.routes],
        "l4_routes": [route for _, route in sorted(version.l4.items())],
        "internal_services": [service for _, service in sorted(version.internal.items())],
        "function_routes": [route for _, route in sorted(version.functions.items())],
    }
