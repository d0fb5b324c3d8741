"""Hosts: who claims a hostname, who gets it, and the routes that follow.

A domain claims (hostname, path prefix) for the environment that it names; an environment claims its implicit host whole.
Of several claims of the same (hostname, prefix), the one that our own record shows keeps it, else the lower subject gets
it; so a newcomer never takes traffic away. Claims of environments that do not exist do not count.
"""

from operator import attrgetter
from typing import NamedTuple

from services.routes.serving import View
from services.routes.world import Env, Item, State, domain_env
from services.routes.written import in_force
from shared import subjects
from shared.model.domain import Middleware
from shared.model.route import HostRoutes, HTTPRoute
from shared.subjects import Key


class Claim(NamedTuple):
    """`by` is the domain's key, or the environment's for an implicit host."""

    by: Key
    env: Env
    prefix: str = ""
    port: str | None = None
    middleware: Middleware | None = None

    @property
    def subject(self) -> str:
        """Of the record that claims; the lower one is the elder."""
        return (subjects.DOMAIN if len(self.by) == 2 else subjects.ENVIRONMENT).subject(*self.by)

    @property
    def domain(self) -> str:
        return "/".join(self.by) if len(self.by) == 2 else ""


class Loss(NamedTuple):
    """A claim that another keeps."""

    loser: Claim
    winner: Claim


def host(view: View, item: Item) -> tuple[HostRoutes | None, tuple[Loss, ...]]:
    """Every route of one hostname, None where nobody claims it; and the claims that lost."""
    winners: dict[str, Claim] = {}
    losses: list[Loss] = []
    for prefix, claims in _by_prefix(view.state, item).items():
        winner = winners[prefix] = _winner(view.state, item, prefix, claims)
        losses += [Loss(claim, winner) for claim in claims if claim is not winner]
    if not winners:
        return None, ()
    hostname = subjects.hostname(item[1])
    longest_first = sorted(winners, key=lambda prefix: (-len(prefix), prefix))
    return HostRoutes(
        hostname=hostname, routes=tuple(_route(view, hostname, winners[prefix]) for prefix in longest_first)
    ), tuple(losses)


def _by_prefix(state: State, item: Item) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    every = claims(state, item)
    if len(every) > 1:
        every.sort(key=attrgetter("subject"))
    for claim in every:
        found.setdefault(claim.prefix, []).append(claim)
    return found


def claims(state: State, item: Item) -> list[Claim]:
    found = [Claim(env, env) for env in state.claimants.get(item, ()) if state.exists(env)]
    for key in state.domains_at.get(item[1], ()):
        domain = state.domains[key]
        env = domain_env(key, domain)
        if state.exists(env):
            found.append(Claim(key, env, domain.path_prefix, domain.port, domain.middleware))
    return found


def _winner(state: State, item: Item, prefix: str, claims: list[Claim]) -> Claim:
    """The incumbent, else the lower subject; `claims` are in the order of their subjects."""
    if len(claims) == 1:
        return claims[0]
    written = in_force(state, item)
    routes = written.routes if isinstance(written, HostRoutes) else ()
    incumbent = next((route for route in routes if route.path_prefix == prefix), None)
    if incumbent is None:
        return claims[0]
    keeps = incumbent.domain or incumbent.environment
    return next((claim for claim in claims if "/".join(claim.by) == keeps), claims[0])


def _route(view: View, hostname: str, claim: Claim) -> HTTPRoute:
    serving = view.of(claim.env)
    policy = serving.policy
    endpoints = serving.endpoints(claim.port or policy.default_port)
    return HTTPRoute(
        hostname=hostname,
        path_prefix=claim.prefix,
        domain=claim.domain,
        environment=serving.name,
        middleware=claim.middleware,
        endpoints=endpoints,
        cold=policy.scale_to_zero and not endpoints,
        via_activator=policy.scale_to_zero or policy.max_concurrency > 0,
        max_concurrency=policy.max_concurrency,
        rate_limit=policy.rate_limit,
        route_generation=serving.route_generation,
    )
