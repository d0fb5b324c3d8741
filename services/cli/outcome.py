"""Waiting until what was published is in effect, with progress meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from services.cli import fleet, names
from services.cli.exits import Failed
from services.cli.manifests import Manifest
from services.cli.output import say
from services.cli.world import LiveWorld, World, following
from shared import subjects
from shared.model.deployment import Deployment
from shared.model.domain import Domain
from shared.model.node import NodeControl, NodeStatus
from shared.model.route import HostRoutes, RouteManifest
from shared.runtime.bus import Bus
from shared.subjects import Key

Progress = Callable[[str], None]

KINDS = (
    *fleet.KINDS,
    subjects.DEPLOYMENT,
    subjects.NODE_STATUS,
    subjects.ROUTE_HOST,
    subjects.ROUTE_MANIFEST,
)


async def wait_for(bus: Bus, written: Sequence[tuple[Manifest, int]], within: float) -> None:
    """Return when everything is in effect. Raises `TimedOut`, or `Failed` for a deployment that failed."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within
    async with following(bus, [kind.subject_filter for kind in KINDS]) as world:
        for manifest, sequence in written:
            remaining = max(0.0, deadline - clock())
            if manifest.kind is subjects.DEPLOY:
                await deployed(world, manifest.key, remaining, say)
                continue
            await _effective(world, manifest, sequence, remaining)
            say(f"{manifest.title}: in effect")


async def _effective(world: LiveWorld, manifest: Manifest, sequence: int, within: float) -> None:
    await world.until(
        lambda: in_effect(world, manifest, sequence) or None,
        within,
        lambda: f"{manifest.title} is not in effect{_why(world, manifest.key)}",
    )


def in_effect(world: World, manifest: Manifest, sequence: int) -> bool:
    """Whether what a manifest asks for can be seen in the records of the services."""
    match manifest.record:
        case Domain() as domain:
            return _routed(world, domain, manifest.key[0], sequence)
        case NodeControl(drain=True):
            status = world.record(subjects.NODE_STATUS, manifest.key, NodeStatus)
            return status is not None and status.drain == "drained"
        case _ if manifest.kind is subjects.ENVIRONMENT:
            count = fleet.count(world, manifest.key)
            return count.desired <= count.healthy
        case _:
            return True


def _routed(world: World, domain: Domain, project: str, sequence: int) -> bool:
    covering = world.record(subjects.ROUTE_MANIFEST, (), RouteManifest)
    if covering is None or covering.covers < sequence:
        return False
    host = world.record(subjects.ROUTE_HOST, subjects.host_key(domain.hostname), HostRoutes)
    environment = f"{project}/{domain.environment}"
    return host is not None and any(
        route.path_prefix == domain.path_prefix and route.environment == environment for route in host.routes
    )


async def deployed(world: LiveWorld, key: Key, within: float, progress: Progress) -> Deployment:
    """The deployment of a request once its release serves. Raises `Failed` with the reason, or `TimedOut`."""
    reported = _Transitions(progress)

    def settled() -> Deployment | None:
        deployment = world.record(subjects.DEPLOYMENT, key, Deployment)
        if deployment is None:
            return None
        reported.take(deployment)
        return deployment if deployment.promoted_at or deployment.terminal else None

    deployment = await world.until(settled, within, lambda: _standing(world, key))
    if deployment.phase in {"failed", "canceled", "superseded"}:
        reason = deployment.error or (deployment.transitions[-1].reason if deployment.transitions else "")
        raise Failed(
            f"{names.joined(key[:3])}: version {deployment.version} {deployment.phase}: {reason or 'no reason'}"
        )
    return deployment


def _standing(world: World, key: Key) -> str:
    deployment = world.record(subjects.DEPLOYMENT, key, Deployment)
    if deployment is None:
        return f"{names.joined(key)}: no scheduler has taken the request up (`steer status` shows the leaders)"
    return f"{names.joined(key[:3])}: version {deployment.version} is still {deployment.phase}{_why(world, key[:3])}"


def _why(world: World, key: Key) -> str:
    standing = [notice.message for _, notice in fleet.notices(world, key) if notice.severity != "info"]
    return f" ({'; '.join(standing)})" if standing else ""


class _Transitions:
    """Tells each change of phase once, with the time since the first."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._told = 0
        self._began: datetime | None = None

    def take(self, deployment: Deployment) -> None:
        for transition in deployment.transitions[self._told :]:
            self._began = self._began or transition.at
            after = (transition.at - self._began).total_seconds()
            reason = f": {transition.reason}" if transition.reason else ""
            self._progress(f"{after:6.1f} s  {transition.phase}{reason}")
        self._told = max(self._told, len(deployment.transitions))
