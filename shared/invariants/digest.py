"""9: any path of route versions gives the same as loading them whole: each has the digest that its manifest names."""

from collections.abc import Iterator

from shared import route_digest
from shared.invariants.logged import Breach, Logged
from shared.invariants.moment import Moment
from shared.model.route import RouteManifest
from shared.runtime.encode import is_tombstone
from shared.subjects import ROUTE_MANIFEST, ROUTE_SUBJECTS


class RoutesAddUp:
    def __init__(self) -> None:
        self._digest = 0
        self._terms: dict[str, int] = {}

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for message in moment.messages:
            if message.version is not None and isinstance(message.version.record, RouteManifest):
                manifest = message.version.record
                if route_digest.text(self._digest) != manifest.digest:
                    detail = f"the records of version {manifest.version} have not the digest that it names"
                    yield Breach("9", message.sequence, message.subject, detail)
            elif message.subject.startswith(ROUTE_SUBJECTS[:-1]) and message.subject != ROUTE_MANIFEST.subject():
                self._take(message)

    def _take(self, message: Logged) -> None:
        removed = self._terms.pop(message.subject, 0)
        added = 0 if is_tombstone(message.headers) else route_digest.term(message.subject, message.body)
        if added:
            self._terms[message.subject] = added
        self._digest = route_digest.moved(self._digest, removed, added)
