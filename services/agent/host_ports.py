"""Free ports of this machine for replicas, from a range below the one from which outgoing connections take theirs."""

import random
import socket
from collections.abc import Iterable, Mapping

from services.agent.driver import DriverError
from shared.model.run import PortSpec

ATTEMPTS = 200


class HostPorts:
    """Gives ports away and takes them back. A port is tried before it is given: others use this machine as well."""

    def __init__(self, first: int, last: int) -> None:
        self._range = range(first, last + 1)
        self._taken: set[int] = set()

    def take(self, specs: Iterable[PortSpec]) -> dict[str, int]:
        """One free port for each. Raises `DriverError` when none is found."""
        ports: dict[str, int] = {}
        try:
            for spec in specs:
                ports[spec.name] = self._free(spec)
        except DriverError:
            self.release(ports)
            raise
        return ports

    def reserve(self, ports: Mapping[str, int]) -> None:
        self._taken.update(ports.values())

    def release(self, ports: Mapping[str, int]) -> None:
        self._taken.difference_update(ports.values())

    def _free(self, spec: PortSpec) -> int:
        kind = socket.SOCK_DGRAM if spec.protocol == "udp" else socket.SOCK_STREAM
        for _ in range(ATTEMPTS):
            # At random, so that several agents on one machine seldom try the same port at the same time.
            port = random.choice(self._range)
            if port not in self._taken and _can_bind(port, kind):
                self._taken.add(port)
                return port
        first, last = self._range[0], self._range[-1]
        raise DriverError(f"no free {spec.protocol} port for {spec.name!r} found between {first} and {last}")


def _can_bind(port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as candidate:
        try:
            candidate.bind(("", port))
        except OSError:
            return False
    return True
