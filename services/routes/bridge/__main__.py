"""`python -m services.routes.bridge`: apply the routes to a proxy. Each option is also `STEER_BRIDGE_<OPTION>`.

HAProxy is run as a master with workers, `haproxy -W -S MASTER -f CONFIG`; the bridge writes CONFIG before it is there.
Caddy loses connections when its configuration changes, so give it `--slots`, a directory that it can read, in which the
endpoints change without it; and its listening socket (`--http fd/3`, as systemd does) for when hosts or policies change.
How to reach the bus is told by the environment alone, as for every process.
Exit codes: 0 stopped, 1 the connection to the bus is gone for good, 2 a setting cannot be used.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import shared.runtime  # noqa: F401 - first, for what its libraries then do not import
from services.routes.bridge.bridge import Bridge, Proxy
from services.routes.bridge.caddy import Caddy
from services.routes.bridge.haproxy import HAProxy
from services.routes.bridge.run import run_bridge
from services.routes.render import FORMS, Options, Renderer
from shared.errors import ConfigurationError
from shared.model.base import NAME_PATTERN
from shared.runtime import logs
from shared.runtime.process import run, starting
from shared.runtime.settings import Settings

_SOCKET = re.compile(r"unix/(/[A-Za-z0-9._-]+)+")
_DIRECTORY = re.compile(r"(/[A-Za-z0-9._-]+)+")
_ADDRESS = re.compile(r"([A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}")


class Kind(StrEnum):
    CADDY = "caddy"
    HAPROXY = "haproxy"


def _option(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, envvar=f"STEER_BRIDGE_{name.upper().replace('-', '_')}")


def main(
    *,
    proxy: Annotated[Kind, _option("proxy", "Which proxy it is.")],
    name: Annotated[str, _option("name", "Its name among the proxies.")],
    http: Annotated[str, _option("http", "Where the proxy listens: host:port, or for Caddy fd/3.")] = ":80",
    https: Annotated[str, _option("https", "The same for HTTPS; without it nothing redirects there.")] = "",
    certificates: Annotated[str, _option("certificates", "A directory of .pem files, each a chain and its key.")] = "",
    internal: Annotated[str, _option("internal", "Where services and functions reach each other, host:port.")] = "",
    activator: Annotated[
        list[str] | None, _option("activator", "host:port of an activator; may be repeated (in the variable: spaces).")
    ] = None,
    l4_host: Annotated[str, _option("l4-host", "Where public ports are opened; by default everywhere.")] = "",
    cache: Annotated[Path | None, _option("cache", "A file of routes to serve from while the bus is away.")] = None,
    admin: Annotated[str, _option("admin", "Caddy's admin API, host:port or unix//PATH.")] = "127.0.0.1:2019",
    slots: Annotated[Path | None, _option("slots", "A directory from which Caddy reads the endpoints.")] = None,
    config: Annotated[Path | None, _option("config", "HAProxy's file.")] = None,
    socket: Annotated[Path | None, _option("socket", "HAProxy's statistics socket.")] = None,
    master: Annotated[Path | None, _option("master", "The socket of HAProxy's master (-S).")] = None,
    pid_file: Annotated[Path | None, _option("pid-file", "The pid of HAProxy's master, without --master.")] = None,
    program: Annotated[str, _option("program", "HAProxy itself, to check its file.")] = "haproxy",
) -> None:
    """Follow the routes, render them for a proxy, apply them, and acknowledge what the proxy has."""
    with starting():
        if not re.fullmatch(NAME_PATTERN[1:-1], name):
            raise ConfigurationError(f"--name {name!r}: not a DNS-1123 label (a-z, 0-9 and -, at most 63 characters)")
        if https and proxy is Kind.HAPROXY and not certificates:
            raise ConfigurationError("--https needs --certificates with HAProxy")
        options = Options(
            http=_listener("http", http, proxy),
            https=_listener("https", https, proxy) if https else "",
            certificates=certificates,
            internal=_listener("internal", internal, proxy) if internal else "",
            activators=tuple(_address("activator", each) for each in activator or ()),
            admin=admin if _SOCKET.fullmatch(admin) else _address("admin", admin),
            socket=str(socket or ""),
            l4_host=l4_host,
            slots=_directory(slots) if slots is not None and proxy is Kind.CADDY else "",
        )
        behind: Proxy = (
            Caddy(admin, slots) if proxy is Kind.CADDY else _haproxy(config, socket, master, pid_file, program)
        )
        settings = Settings.from_environment()
    bridge = Bridge(behind, Renderer(FORMS[proxy.value], options), name, cache)
    logs.configure(settings, service="bridge", proxy=name)
    goes_on = "the proxy goes on with what it has"
    run(lambda stop: run_bridge(settings, bridge, name, stop), stopped=f"stopped; {goes_on}", ended=f"ended; {goes_on}")


def _address(option: str, text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ConfigurationError(f"--{option} {text!r}: not host:port")
    return text


def _directory(path: Path) -> str:
    """As Caddy is told it: nothing in it may mean something else there."""
    if not _DIRECTORY.fullmatch(str(path)):
        raise ConfigurationError(f"--slots {str(path)!r}: not an absolute path of letters, digits, '.', '_' and '-'")
    return str(path)


def _listener(option: str, text: str, proxy: Kind) -> str:
    return text if proxy is Kind.CADDY and re.fullmatch(r"fd/[0-9]{1,4}", text) else _address(option, text)


def _haproxy(
    config: Path | None, socket: Path | None, master: Path | None, pid_file: Path | None, program: str
) -> HAProxy:
    if config is None or socket is None or (master is None and pid_file is None):
        raise ConfigurationError("HAProxy needs --config, --socket, and --master or --pid-file")
    return HAProxy(config, socket, master, pid_file, program)


if __name__ == "__main__":
    typer.run(main)
