"""Telemetry on its way into the state: heard while leading only, aged from receipt by the clock of the service.

It is subscribed to, not followed: a sample that is lost is followed by the next one. Thousands of nodes send one every
few seconds, so a sample waits for others for a moment, and all of them take the lock once.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from nats.aio.subscription import Subscription
from pydantic import BaseModel

from shared import codec, subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.live import BuildSample, NodeSample, ProxySample
from shared.runtime import parts
from shared.runtime.bus import Bus
from shared.runtime.lease import monotonic
from shared.runtime.paced import Paced
from shared.runtime.world import World
from shared.service import Sample

log = structlog.get_logger(__name__)

MODELS: Mapping[str, type[BaseModel]] = {"node": NodeSample, "proxy": ProxySample, "build": BuildSample}
GATHER_SECONDS = 0.05
"""Half of the time in which telemetry asks for one look."""

MOST_WAITING = 50_000
"""Where more come in that time, the oldest are left out."""


class Telemetry:
    """`start` and `stop` with a term; `on_sample` is called after samples have reached the state."""

    def __init__(self, bus: Bus, world: World, on_sample: Callable[[], None]) -> None:
        self._bus = bus
        self._world = world
        self._on_sample = on_sample
        self._subscriptions: list[Subscription] = []
        self._waiting: deque[tuple[bytes, bytes, float]] = deque(maxlen=MOST_WAITING)
        self._observing = Paced(self._observe, GATHER_SECONDS)
        self._last_bad = ""

    async def start(self) -> None:
        """Returns when the server knows of the subscriptions."""
        if self._subscriptions or not self._world.service.observes:
            return
        self._observing.start()
        for source in self._world.service.observes:
            self._subscriptions.append(await self._bus.take(subjects.live_filter(source), self._receive))
        await self._bus.nc.flush()

    async def stop(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await self._bus.leave(subscription)
        await self._observing.stop()
        self._waiting.clear()

    def _receive(self, subject: bytes, reply: bytes, body: bytes, headers: bytes) -> None:
        self._waiting.append((subject, body, monotonic()))
        self._observing.soon()

    async def _observe(self) -> None:
        """Put what waits into the state."""
        world = self._world
        async with world.lock.writer:
            while self._waiting:
                subject, body, received = self._waiting.popleft()
                sample = self._read(subject.decode(errors="surrogateescape"), body)
                if sample is not None:
                    world.service.observe(world.state, sample, world.clock.now(received))
        self._on_sample()

    def _read(self, subject: str, data: bytes) -> Sample | None:
        """None for what cannot be read."""
        try:
            source, name = subjects.parse_live(subject)
            body: Any = codec.validate(MODELS[source], subject, data)
        except (InvalidRecord, InvalidSubject) as error:
            if subject != self._last_bad:  # whoever sends nonsense sends it every few seconds
                self._last_bad = subject
                log.warning("a sample cannot be read", error=str(error)[:500])
            return None
        parts.thin(body)
        return Sample(source, name, body)
