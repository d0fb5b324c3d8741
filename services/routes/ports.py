"""Ports: the public L4 ports that releases open, and the internal service that every environment is."""

from typing import Literal

from services.routes.serving import View
from services.routes.world import Env, Item
from services.routes.written import in_force
from shared.model.route import InternalPort, InternalService, L4Route
from shared.model.run import PortSpec


def l4(view: View, item: Item) -> tuple[L4Route | None, tuple[Env, ...], Env | None]:
    """The route of a public port, None where nobody opens it; the environments that lost it; and the one that has it.

    The environment that our own record shows keeps the port, else the lower subject gets it.
    """
    claimants = sorted(view.state.claimants.get(item, ()))
    if not claimants:
        return None, (), None
    written = in_force(view.state, item)
    incumbent = tuple(written.environment.split("/")) if isinstance(written, L4Route) else ()
    winner = incumbent if incumbent in claimants else claimants[0]
    serving = view.of(winner)
    number = int(item[1][0])
    port = next(port for port in serving.policy.ports if port.public_l4_port == number)
    route = L4Route(
        public_port=number,
        protocol=_transport(port),
        environment=serving.name,
        endpoints=serving.endpoints(port.name),
    )
    return route, tuple(env for env in claimants if env != winner), winner


def internal(view: View, item: Item) -> InternalService | None:
    """Every port of the release that serves, by its container port; None where the environment does not exist."""
    env = item[1]
    if not view.state.exists(env):
        return None
    serving = view.of(env)
    project, app, environment = env
    return InternalService(
        fqdn=f"{app}.{environment}.{project}.internal.",
        environment=serving.name,
        ports=tuple(
            InternalPort(
                name=port.name,
                port=port.container_port,
                protocol=_transport(port),
                endpoints=serving.endpoints(port.name),
            )
            for port in serving.policy.ports
        ),
    )


def _transport(port: PortSpec) -> Literal["tcp", "udp"]:
    return "udp" if port.protocol == "udp" else "tcp"
