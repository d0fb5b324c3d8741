"""Where the hosts lead, kept from version to version: which environments are not routed any more. Pure."""

from collections import Counter
from collections.abc import Iterable

from shared.model.route import HostRoutes


class Led:
    """How many routes lead to each environment."""

    def __init__(self) -> None:
        self._by_host: dict[str, tuple[str, ...]] = {}
        self._routes: Counter[str] = Counter()

    def change(self, hosts: Iterable[tuple[str, HostRoutes | None]]) -> set[str]:
        """Take in hosts that have changed, each under a name that stays (None = gone): what none leads to any more."""
        left: set[str] = set()
        for name, host in hosts:
            before = self._by_host.pop(name, ())
            after = tuple([route.environment for route in host.routes]) if host is not None else ()
            if after:
                self._by_host[name] = after
            self._routes.update(after)
            self._routes.subtract(before)
            left.update(before)
        gone = {environment for environment in left if not self._routes[environment]}
        for environment in gone:
            del self._routes[environment]
        return gone
