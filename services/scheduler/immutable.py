"""Releases are immutable: a body that differs from the one a deployment froze does not count.

A leader refuses it when it comes, and the runtime writes the earlier version again. After a load the log may have the
differing body alone; then it is `contradicted`, nothing is started from it, and the runtime is told.
"""

from collections.abc import Iterator

from services.scheduler.state import State
from shared import subjects
from shared.codec import digest
from shared.model.deployment import Deployment
from shared.model.release import Release
from shared.service import Version
from shared.subjects import Key


def refuses(state: State, version: Version) -> str:
    """Why a version must not come into force; empty where it may."""
    if version.kind is not subjects.RELEASE or not isinstance(version.record, Release):
        return ""
    return _contradiction(state, version.key, version.record)


def contradicted(state: State) -> Iterator[tuple[Version, str]]:
    """The versions in the state that would have been refused, with the reason."""
    for key in sorted(state.contradicted):
        version = state.tables[subjects.RELEASE][key]
        yield version, refuses(state, version)


def sync_contradicted(state: State, key: Key) -> None:
    """A release, or a deployment of it, has changed."""
    release = state.get(subjects.RELEASE, key, Release)
    if release is not None and _contradiction(state, key, release):
        state.contradicted.add(key)
    else:
        state.contradicted.discard(key)


def _contradiction(state: State, key: Key, release: Release) -> str:
    found = ""
    for kind, name in sorted(state.history_of.get(key[:3], ()), key=lambda item: item[1]):
        record = state.get(kind, name, Deployment) if kind is subjects.DEPLOYMENT else None
        if record is None or record.version != key[3] or not record.release_digest:
            continue
        found = found or digest(release)
        if record.release_digest != found:
            return f"a release is immutable: deployment {name[3]} has frozen another body; use a new version"
    return ""
