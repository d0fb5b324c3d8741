"""The whole, for consumers that want one message: `steer.snapshot.routes` in `STEER_SNAPSHOT`.

Pure: the routes of a state as they are, their JSON in pieces, its messages, and when to write it. One that does not fit
in a message is compressed and cut into `steer.snapshot.routes.<n>`, n from 1; the head comes last and names how many.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from services.routes import versions
from services.routes.world import State
from shared import codec, route_digest, subjects
from shared.model.route import RouteSnapshot
from shared.subjects import ROUTE_FUNCTION, ROUTE_HOST, ROUTE_INTERNAL, ROUTE_KINDS, ROUTE_L4, ROUTE_SNAPSHOT, Key

QUIET_SECONDS = 2.0
"""After the last change."""

MOST_SECONDS = 30.0
"""After the first, while changes go on."""

_ROUTES = b'"routes":['


class Taken(NamedTuple):
    """Every route record of one version, by its kind and key, as it was published."""

    version: int
    digest: str
    bodies: Mapping[str, Mapping[Key, bytes]]


def take(state: State) -> Taken | None:
    """The routes of the manifest in force; None while a version is not closed, or before the first."""
    if state.manifest is None or versions.unclosed(state):
        return None
    bodies: dict[str, dict[Key, bytes]] = {kind.name: {} for kind in ROUTE_KINDS}
    for (kind, key), written in state.written.items():
        bodies[kind][key] = written.body
    return Taken(state.manifest.version, route_digest.text(state.digest), bodies)


def pieces(taken: Taken) -> Iterator[bytes]:
    """The JSON of its `RouteSnapshot`, a record at a time, for one who has to do other things in between."""
    hosts = sorted((subjects.hostname(key), body) for key, body in taken.bodies[ROUTE_HOST.name].items())
    l4 = taken.bodies[ROUTE_L4.name]
    lists: dict[str, Iterable[bytes]] = {
        "http_routes": (_routes(body) for _, body in hosts),
        "l4_routes": (l4[key] for key in sorted(l4, key=lambda key: int(key[0]))),
        "internal_services": _in_order(taken.bodies[ROUTE_INTERNAL.name]),
        "function_routes": _in_order(taken.bodies[ROUTE_FUNCTION.name]),
    }
    yield b'{"version":%d,"digest":"%b","chunks":0' % (taken.version, taken.digest.encode())
    for name, bodies in lists.items():
        before = b',"%b":[' % name.encode()
        for body in bodies:
            yield before + body
            before = b","
        yield b"]" if before == b"," else before + b"]"
    yield b',"cert_hosts":%b}' % orjson.dumps([hostname for hostname, _ in hosts])


def _routes(host: bytes) -> bytes:
    """What is between the brackets of `HostRoutes.routes`: a host has at least one."""
    return host[host.index(_ROUTES) + len(_ROUTES) : -len(b"]}")]


def _in_order(bodies: Mapping[Key, bytes]) -> Iterator[bytes]:
    return (bodies[key] for key in sorted(bodies))


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
