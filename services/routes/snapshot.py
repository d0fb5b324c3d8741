"""The whole, for consumers that want one message: `steer.snapshot.routes` in `STEER_SNAPSHOT`.

Pure: the snapshot of a state, its messages, and when to write it. One that does not fit in a message is compressed and
cut into `steer.snapshot.routes.<n>`, n from 1; the head comes last and names how many there are.
"""

import zlib
from collections.abc import Sequence

from services.routes import versions
from services.routes.world import State
from shared import codec, route_digest
from shared.model.route import FunctionRoute, HostRoutes, InternalService, L4Route, RouteSnapshot
from shared.subjects import ROUTE_SNAPSHOT

QUIET_SECONDS = 2.0
"""After the last change."""

MOST_SECONDS = 30.0
"""After the first, while changes go on."""


def snapshot(state: State) -> RouteSnapshot | None:
    """The routes of the manifest in force; None while a version is not closed, or before the first."""
    if state.manifest is None or versions.unclosed(state):
        return None
    records = [written.record for _, written in sorted(state.written.items(), key=lambda entry: entry[0][1])]
    hosts = sorted((each for each in records if isinstance(each, HostRoutes)), key=lambda host: host.hostname)
    l4 = sorted((each for each in records if isinstance(each, L4Route)), key=lambda route: route.public_port)
    return RouteSnapshot(
        version=state.manifest.version,
        digest=route_digest.text(state.digest),
        http_routes=tuple(route for host in hosts for route in host.routes),
        l4_routes=tuple(l4),
        internal_services=tuple(each for each in records if isinstance(each, InternalService)),
        function_routes=tuple(each for each in records if isinstance(each, FunctionRoute)),
        cert_hosts=tuple(host.hostname for host in hosts),
    )


def due_at(first: float, last: float) -> float:
    """When to write changes of which the first came at `first` and the last at `last`, all in seconds."""
    return min(last + QUIET_SECONDS, first + MOST_SECONDS)


def pack(whole: RouteSnapshot, limit_bytes: int = codec.MAX_BODY_BYTES) -> list[tuple[str, bytes]]:
    """Its messages, the head last."""
    body = codec.encode(whole)
    if len(body) <= limit_bytes:
        return [(ROUTE_SNAPSHOT, body)]
    packed = zlib.compress(body)
    chunks = [packed[start : start + limit_bytes] for start in range(0, len(packed), limit_bytes)]
    head = RouteSnapshot(version=whole.version, digest=whole.digest, chunks=len(chunks))
    pieces = [(f"{ROUTE_SNAPSHOT}.{number}", chunk) for number, chunk in enumerate(chunks, start=1)]
    return [*pieces, (ROUTE_SNAPSHOT, codec.encode(head))]


def unpack(head: RouteSnapshot, chunks: Sequence[bytes]) -> RouteSnapshot:
    """The inverse of `pack`."""
    if not head.chunks:
        return head
    return codec.validate(RouteSnapshot, ROUTE_SNAPSHOT, zlib.decompress(b"".join(chunks)))
