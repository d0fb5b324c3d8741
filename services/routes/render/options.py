"""What a configuration says beside the routes: where the proxy listens, and where the activators are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Addresses are `host:port`, with an empty host for all addresses. They come from an operator and are trusted.

    For Caddy `http` and `https` may also be `fd/3`: a listening socket that it was started with. Of its own sockets it
    opens new ones at every change, and connections that wait in the old ones break.

    Without `https` nothing redirects to it. `certificates` is a directory of `.pem` files, each a chain and its key: one
    for HAProxy to choose from by the name that a client asks for; Caddy gets those that are missing by itself.
    `internal` is where services and functions reach each other; without it those routes are not rendered. `admin` is
    Caddy's admin API; `socket` a path on which HAProxy answers questions. `l4_host` is where public ports are opened.
    `slots` is a directory from which Caddy reads the addresses of endpoints (see `slots.py`); without it they are in the
    configuration. `mark` names the version inside the configuration, so that the proxy can be asked for it.
    """

    http: str = ":80"
    https: str = ""
    certificates: str = ""
    internal: str = ""
    activators: tuple[str, ...] = ()
    admin: str = "127.0.0.1:2019"
    socket: str = ""
    l4_host: str = ""
    slots: str = ""
    mark: str = ""

    @property
    def reserved_ports(self) -> frozenset[int]:
        """Ports that no public L4 port may take."""
        addresses = (self.http, self.https, self.internal, self.admin, *self.activators)
        tails = (address.rpartition(":")[2] for address in addresses)
        return frozenset(int(tail) for tail in tails if tail.isdigit())
