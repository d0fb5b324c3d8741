"""Simulated proxies: they follow the versions of the routes, switch when a version is complete, and say what they serve.

A version whose digest does not agree with what was followed is a violation, unless the load began in the middle of one:
then nothing is served until the next version closes.
"""

from collections.abc import Callable

from shared import route_digest
from shared.model.live import ProxySample
from shared.model.route import RouteManifest
from shared.runtime import encode
from shared.service import Sample
from shared.subjects import ROUTE_KINDS, ROUTE_MANIFEST

from .faults import Rates
from .follower import Follower
from .invariants import Violation
from .process import Process
from .surroundings import Surroundings
from .visitors import Visitors
from .wire import Stored

REPORT_SECONDS = 5.0


class Proxy(Process):
    """`serving` maps the subject of a route record to its body, as of `version`."""

    def __init__(
        self,
        name: str,
        around: Surroundings,
        rates: Rates,
        telemetry: Callable[[Sample], None],
        visitors: Visitors | None = None,
    ) -> None:
        super().__init__(name, around.timeline)
        self._log = around.log
        self._random = around.random
        self._rates = rates
        self._telemetry = telemetry
        self._visitors = visitors
        self._follower = Follower(around.log, around.random, (*ROUTE_KINDS, ROUTE_MANIFEST))
        self.serving: dict[str, bytes] = {}
        self.version = 0
        self.refusing = False
        self.serving_since: float | None = None

    def started(self) -> None:
        self._loaded = False
        self._whole = False
        self._buffer: list[Stored] = []
        self._manifest: Stored | None = None
        self.serving, self.version, self._digest, self.serving_since = {}, 0, 0, None
        self._follower.start(self, self._receive, self._caught_up)
        self.later(self._random.uniform(0, REPORT_SECONDS), self._report_regularly)

    def _receive(self, stored: Stored) -> None:
        self._buffer.append(stored)
        if stored.kind is ROUTE_MANIFEST:
            self._manifest = stored
            if self._loaded:
                self._switch()

    def _caught_up(self) -> None:
        """What is newer than the manifest belongs to a version that is not complete yet."""
        self._loaded = True
        if self._manifest is not None:
            self._switch()

    def _switch(self) -> None:
        if self.refusing:
            return
        assert self._manifest is not None
        manifest = self._log.read(self._manifest).record
        assert isinstance(manifest, RouteManifest)
        later = [stored for stored in self._buffer if stored.sequence > self._manifest.sequence]
        for stored in self._buffer:
            if stored.sequence < self._manifest.sequence and stored.kind is not ROUTE_MANIFEST:
                self._apply(stored)
        self._buffer = later
        if route_digest.text(self._digest) == manifest.digest:
            self._whole = True
            self.version = manifest.version
            if self.serving_since is None:
                self.serving_since = self.timeline.seconds
            self._report()
        elif self._whole:
            raise Violation("routes", f"{self.name} followed version {manifest.version} and its digest is another")

    def _apply(self, stored: Stored) -> None:
        before = self.serving.pop(stored.subject, None)
        removed = route_digest.term(stored.subject, before) if before is not None else 0
        added = 0
        if not encode.is_tombstone(stored.headers):
            self.serving[stored.subject] = stored.body
            added = route_digest.term(stored.subject, stored.body)
        self._digest = route_digest.moved(self._digest, removed, added)

    def refuse(self, refusing: bool) -> None:
        """Stay with the version that is served, and say that there is an error."""
        self.refusing = refusing
        if self.up and not refusing and self._manifest is not None and self._loaded:
            self._switch()
        if self.up:
            self._report()

    def serves(self, assignment: str) -> bool:
        """Whether requests are still sent to a replica."""
        return any(assignment.encode() in body for body in self.serving.values())

    def _report(self) -> None:
        if self._random.random() >= self._rates.lost_sample:
            error = "cannot apply" if self.refusing else ""
            digest = route_digest.text(self._digest)
            demand = self._visitors.demand(self.name, self.serving) if self._visitors is not None else {}
            sample = ProxySample(version=self.version, digest=digest, error=error, demand=demand)
            self._telemetry(Sample("proxy", self.name, sample))

    def _report_regularly(self) -> None:
        self.later(REPORT_SECONDS, self._report_regularly)
        self._report()
