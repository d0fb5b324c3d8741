"""Versions: when one goes out, what closes it, and what it tells those who wait for it.

A version is its changed records and then the manifest; it may take several commits, and what a leader left unclosed the
next one closes. The first change after 20 quiet milliseconds goes out at once; a burst, at most one version per 50.

The digest is taken over bodies as they were published. Where another layout of the records wrote them (`format`), their
bodies are not those that we would write: all of them are then written once more.

`Routed` tells the scheduler, by environment, which active release and which drains the routes have taken in. It is
written with a manifest even if no route changed, so that what waits for it always ends.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from services.routes.world import Env, Item, State
from shared import codec, route_digest, subjects
from shared.model.domain import Middleware
from shared.model.environment import RateLimit
from shared.model.route import (
    Endpoint,
    FunctionRoute,
    HostRoutes,
    HTTPRoute,
    InternalPort,
    InternalService,
    L4Route,
    Routed,
    RouteManifest,
)
from shared.service import Version
from shared.subjects import Kind

SPACING = timedelta(milliseconds=50)


def _format() -> str:
    """A fingerprint of how route records are written: their fields, in order, with what is written by default."""
    endpoint = Endpoint(assignment="a", node="n", address="h:1")
    port = InternalPort(name="p", port=1, protocol="tcp", endpoints=(endpoint,))
    route = HTTPRoute(
        hostname="h", environment="e", middleware=Middleware(), rate_limit=RateLimit(), endpoints=(endpoint,)
    )
    samples = (
        HostRoutes(hostname="h", routes=(route,)),
        L4Route(public_port=1, protocol="tcp", environment="e", endpoints=(endpoint,)),
        InternalService(fqdn="f", environment="e", ports=(port,)),
        FunctionRoute(namespace="n", function="f", pool="p", endpoints=(endpoint,)),
    )
    return sha256(b"".join(codec.encode(sample) for sample in samples)).hexdigest()[:16]


FORMAT = _format()


def opens_at(state: State, now: datetime) -> datetime:
    """When the next version may go out."""
    if state.published_at is None or state.quiet or unclosed(state):
        return now
    return max(now, state.published_at + SPACING)


def recall(state: State, commit: Sequence[Version], now: datetime) -> None:
    """What went out had its time: that is in the log, and nothing is spaced when it is decided again."""
    state.quiet = True


def number(state: State) -> int:
    """Of the manifest in force; 0 before the first."""
    return state.manifest.version if state.manifest else 0


def unclosed(state: State) -> bool:
    """Something has been published that no manifest covers yet."""
    closed = state.manifest.digest if state.manifest else route_digest.text(0)
    return closed != route_digest.text(state.digest) or state.routed_version > number(state)


def outdated(state: State, item: Item) -> bool:
    """Whether the record was written in another layout than ours; one that is newer than the manifest was not."""
    other = state.manifest is not None and state.manifest.format != FORMAT
    return other and state.sequences[item[0]][item[1]] < state.closed_sequence


def manifest(state: State, digest: int, gained: Mapping[str, int]) -> RouteManifest:
    """What closes the version that leads to `digest`.

    `covers` counts foreign records only. A record of our own is folded as soon as it is acknowledged, ahead of foreign
    ones with lower sequences that are still on their way.
    """

    def count(kind: Kind) -> int:
        return state.counts.get(kind.name, 0) + gained.get(kind.name, 0)

    return RouteManifest(
        version=number(state) + 1,
        format=FORMAT,
        covers=state.covers,
        digest=route_digest.text(digest),
        hosts=count(subjects.ROUTE_HOST),
        l4_ports=count(subjects.ROUTE_L4),
        internal_services=count(subjects.ROUTE_INTERNAL),
        functions=count(subjects.ROUTE_FUNCTION),
    )


def routed(state: State, env: Env) -> Routed | None:
    """What to say of an environment: the record in force where that is enough, None where nothing is left to speak of.

    What the assignments that have gone once had is forgotten with the next change, not by one of its own.
    """
    active, written = state.actives.get(env), state.routed.get(env)
    places = state.replicas_of.get(env, set())
    if not places and not state.exists(env) and (active is None or not active.record.version):
        return None
    known = written.drains if written else {}
    drains = {place[1]: state.replicas[place].drain or known.get(place[1], 0) for place in sorted(places)}
    drains = {assignment: sequence for assignment, sequence in drains.items() if sequence}
    taken_in = active.sequence if active else (written.active_sequence if written else 0)
    if written is None and not taken_in and not drains:
        return None
    if written and written.active_sequence == taken_in and drains.items() <= known.items():
        return written
    return Routed(active_sequence=taken_in, drains=drains, version=number(state) + 1)
