"""Our own records, folded: the routes with their digest, the manifest, `Routed`, and the notices of conflicts.

An own record is looked at again when it is read: after a load nobody else says that what led to it has gone.
The digest is kept here, one hash per record: what is drafted, stored and folded is written out once (`as_written`).
"""

from typing import cast

from services.routes.world import (
    HOST_CONFLICT,
    IMPLICIT_HOST_CONFLICT,
    PORT_CONFLICT,
    SERVICE,
    TOO_LARGE,
    Item,
    Mark,
    Route,
    State,
    Written,
)
from shared import codec, route_digest, subjects
from shared.model.route import Routed, RouteManifest
from shared.model.service import Notice
from shared.service import MAX_BATCH, Version
from shared.subjects import Key

_ROUTE_KINDS = frozenset(kind.name for kind in subjects.ROUTE_KINDS)
_recent: dict[Item, tuple[Route, Written]] = {}

REMEMBERED = 2 * MAX_BATCH
"""As many as a pass may draft: one that is not stored is drafted again."""


def fold_route(state: State, version: Version) -> None:
    item: Item = (version.kind.name, version.key)
    before = state.written.pop(item, None)
    after = None
    if version.record is not None:
        after = state.written[item] = as_written(item, cast(Route, version.record))
    state.digest = route_digest.moved(state.digest, before.term if before else 0, after.term if after else 0)
    state.counts[item[0]] = state.counts.get(item[0], 0) + (after is not None) - (before is not None)
    look_again(state, item, version)


def forget_drafts() -> None:
    """What was drafted is folded."""
    _recent.clear()


def in_force(state: State, item: Item) -> Route | None:
    """A route record of our own, read; None where there is none."""
    written = state.written.get(item)
    if written is None:
        return None
    return cast(Route, codec.validate(codec.MODELS[subjects.BY_NAME[item[0]]], subject_of(item), written.body))


def as_written(item: Item, route: Route) -> Written:
    """A route record as it is published, remembered from its draft to its fold (`forget_drafts`)."""
    known = _recent.get(item)
    if known is not None and known[0] is route:
        return known[1]
    body = codec.encode(route)
    written = Written(body, route_digest.term(subject_of(item), body))
    if len(_recent) >= REMEMBERED:
        _recent.clear()
    _recent[item] = route, written
    return written


def subject_of(item: Item) -> str:
    return subjects.BY_NAME[item[0]].subject(*item[1])


def fold_manifest(state: State, version: Version) -> None:
    state.manifest = cast(RouteManifest | None, version.record)
    state.closed_sequence = version.sequence
    state.published_at = version.at
    state.quiet = False  # what has changed meanwhile belongs to a burst


def fold_routed(state: State, version: Version) -> None:
    state.routed.pop(version.key, None)
    if version.record is not None:
        routed = state.routed[version.key] = cast(Routed, version.record)
        state.routed_version = max(state.routed_version, routed.version)
    look_again(state, (version.kind.name, version.key), version)


def fold_notice(state: State, version: Version) -> None:
    item = disputed(version.key)
    if item is None:
        return
    raised = state.notices.setdefault(item, {})
    raised.pop(version.key, None)
    if version.record is not None:
        raised[version.key] = cast(Notice, version.record)
    if not raised:
        del state.notices[item]
    look_again(state, item, version)


def look_again(state: State, item: Item, version: Version) -> None:
    """What we have written ourselves is no change that others wait for, and nothing new to a look that is under way."""
    if item not in state.dirty:
        state.dirty[item] = Mark(0, version.sequence)


def notice_key(item: Item, loser: Key) -> Key:
    """The notice that `loser`, a domain (two tokens) or an environment (three), does not get the host or port."""
    if item[0] == subjects.ROUTE_L4.name:
        return (SERVICE, PORT_CONFLICT, *item[1], *loser)
    return (SERVICE, HOST_CONFLICT if len(loser) == 2 else IMPLICIT_HOST_CONFLICT, *item[1], *loser)


def too_large_key(item: Item) -> Key:
    """The notice that a route does not fit in a message."""
    return (SERVICE, TOO_LARGE, item[0], *item[1])


def disputed(notice: Key) -> Item | None:
    """The inverse of both: the record that a notice speaks of; None for a notice of another service or kind."""
    match notice:
        case ("routes", "host_conflict", *host, _, _) if host:
            return subjects.ROUTE_HOST.name, tuple(host)
        case ("routes", "implicit_host_conflict", *host, _, _, _) if host:
            return subjects.ROUTE_HOST.name, tuple(host)
        case ("routes", "port_conflict", port, _, _, _):
            return subjects.ROUTE_L4.name, (port,)
        case ("routes", "route_too_large", kind, *key) if kind in _ROUTE_KINDS:
            return kind, tuple(key)
    return None
