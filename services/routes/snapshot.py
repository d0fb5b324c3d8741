"""The whole, for consumers that want one message: `steer.snapshot.routes` in `STEER_SNAPSHOT`.

Pure: the routes of a state as they are, their JSON in pieces, its messages, and when to write it. One that does not fit
in a message is compressed and cut into `steer.snapshot.routes.<n>`, n from 1; the head comes last and names how many.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import orjson
from pydantic import BaseModel

from services.routes import versions
from services.routes.world import Route, State
from shared import codec, route_digest
from shared.model.route import FunctionRoute, HostRoutes, InternalService, L4Route, RouteSnapshot
from shared.subjects import ROUTE_SNAPSHOT

QUIET_SECONDS = 2.0
"""After the last change."""

MOST_SECONDS = 30.0
"""After the first, while changes go on."""


class Taken(NamedTuple):
    """Every route of one version, in no order. The records are the state's own, which are replaced but never changed."""

    version: int
    digest: str
    routes: tuple[Route, ...]


def take(state: State) -> Taken | None:
    """The routes of the manifest in force; None while a version is not closed, or before the first."""
    if state.manifest is None or versions.unclosed(state):
        return None
    routes = tuple(written.record for written in state.written.values())
    return Taken(state.manifest.version, route_digest.text(state.digest), routes)


def pieces(taken: Taken) -> Iterator[bytes]:
    """The JSON of its `RouteSnapshot`, a route at a time, for one who has to do other things in between."""
    hosts = sorted((each for each in taken.routes if isinstance(each, HostRoutes)), key=attrgetter("hostname"))
    lists: dict[str, Iterable[BaseModel]] = {
        "http_routes": (route for host in hosts for route in host.routes),
        "l4_routes": _sorted(taken, L4Route, "public_port"),
        "internal_services": _sorted(taken, InternalService, "environment"),
        "function_routes": _sorted(taken, FunctionRoute, "namespace", "function"),
    }
    yield b'{"version":%d,"digest":"%b","chunks":0' % (taken.version, taken.digest.encode())
    for name, routes in lists.items():
        separator = b',"%b":[' % name.encode()
        for route in routes:
            yield separator + codec.encode(route)
            separator = b","
        yield b"]" if separator == b"," else separator + b"]"
    yield b',"cert_hosts":%b}' % orjson.dumps([host.hostname for host in hosts])


def _sorted(taken: Taken, kind: type[Route], *by: str) -> list[Route]:
    return sorted((each for each in taken.routes if isinstance(each, kind)), key=attrgetter(*by))


def due_at(first: float, last: float) -> float:
    """When to write changes of which the first came at `first` and the last at `last`, all in seconds."""
    return min(last + QUIET_SECONDS, first + MOST_SECONDS)


def pack(version: int, digest: str, body: bytes, limit_bytes: int = codec.MAX_BODY_BYTES) -> list[tuple[str, bytes]]:
    """The messages of a `RouteSnapshot` whose JSON is `body`, the head last."""
    if len(body) <= limit_bytes:
        return [(ROUTE_SNAPSHOT, body)]
    packed = zlib.compress(body, zlib.Z_BEST_SPEED)
    chunks = [packed[start : start + limit_bytes] for start in range(0, len(packed), limit_bytes)]
    head = RouteSnapshot(version=version, digest=digest, chunks=len(chunks))
    numbered = [(f"{ROUTE_SNAPSHOT}.{number}", chunk) for number, chunk in enumerate(chunks, start=1)]
    return [*numbered, (ROUTE_SNAPSHOT, codec.encode(head))]


def unpack(head: RouteSnapshot, chunks: Sequence[bytes]) -> RouteSnapshot:
    """The inverse of `pack`."""
    if not head.chunks:
        return head
    return codec.validate(RouteSnapshot, ROUTE_SNAPSHOT, zlib.decompress(b"".join(chunks)))
