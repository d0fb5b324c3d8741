"""Simulated users of builds: they ask for one, take it back, delete it, or publish what cannot be read."""

from random import Random

from shared.model.build import BuildPool, BuildRequest
from shared.subjects import BUILD, BUILD_POOL, Key

from .build_workers import POOL
from .clock import Timeline
from .log import Log
from .wire import Message, put

OWNERS = ("a", "b", "c")


def build_pool(random: Random) -> BuildPool:
    return BuildPool(
        min_workers=random.choice((0, 0, 1)),
        max_workers=random.randint(1, 4),
        max_idle_seconds=20,
        lease_ttl_seconds=10,
        owner_limit=random.choice((None, 1, 2)),
        max_attempts=random.choice((2, 4)),
        ready_timeout_seconds=10,
        queue_timeout_seconds=1000,
        build_timeout_seconds=60,
    )


class BuildUsers:
    """`every_seconds` is the mean time between two wishes."""

    def __init__(self, log: Log, timeline: Timeline, random: Random, every_seconds: float) -> None:
        self._log, self._timeline, self._random = log, timeline, random
        self._every_seconds = every_seconds
        self.pool = build_pool(random)
        self.requested: list[Key] = []
        self._own: list[Key] = []
        self.busy = True

    def begin(self) -> None:
        self._log.publish(put(BUILD_POOL, (POOL,), self.pool))
        self._timeline.after(1, self._step)

    def rest(self) -> None:
        self.busy = False

    def request(self, project: str, app: str) -> str:
        """Ask for a build; its id."""
        new: Key = (project, app, f"{len(self.requested) + 1:026d}")
        self.requested.append(new)
        request = BuildRequest(
            owner=self._random.choice(OWNERS),
            source_digest="d",
            cache_key=self._random.choice(("", "x", "y")),
            canceled=self._random.random() < 0.05,
        )
        self._log.publish(put(BUILD, new, request))
        return new[2]

    def _step(self) -> None:
        if not self.busy:
            return
        self._timeline.after(self._random.expovariate(1 / self._every_seconds), self._step)
        what = self._random.random()
        if what < 0.7 or not self.requested:
            app = self._random.choice(("web", "api"))
            self._own.append(("shop", app, self.request("shop", app)))
        elif what < 0.75:
            key = self._random.choice((("shop", "web", "0" * 26), *self.requested[-5:]))
            self._log.publish(Message(BUILD.subject(*key), b'{"owner": 3}'))
        elif what < 0.9:
            self._change(self._random.choice(self.requested[-10:]), cancel=True)
        elif self._own:
            self._change(self._random.choice(self._own[-10:]), cancel=False)

    def _change(self, key: Key, *, cancel: bool) -> None:
        """Take a build back, or delete it."""
        request = self._log.record(BUILD, key)
        if isinstance(request, BuildRequest):
            canceled = request.model_copy(update={"canceled": True})
            self._log.publish(put(BUILD, key, canceled if cancel else None))
