"""Telemetry on its way into the state: heard while leading only, aged from receipt by the clock of the service.

It is subscribed to, not followed: a sample that is lost is followed by the next one.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import BaseModel

from shared import codec, subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.live import BuildSample, NodeSample, ProxySample
from shared.runtime.bus import Bus
from shared.runtime.lease import monotonic
from shared.runtime.world import World
from shared.service import Sample

log = structlog.get_logger(__name__)

MODELS: Mapping[str, type[BaseModel]] = {"node": NodeSample, "proxy": ProxySample, "build": BuildSample}


class Telemetry:
    """`start` and `stop` with a term; `on_sample` is called after each sample."""

    def __init__(self, bus: Bus, world: World, on_sample: Callable[[], None]) -> None:
        self._bus = bus
        self._world = world
        self._on_sample = on_sample
        self._subscriptions: list[Subscription] = []
        self._last_bad = ""

    async def start(self) -> None:
        """Returns when the server knows of the subscriptions."""
        if self._subscriptions or not self._world.service.observes:
            return
        for source in self._world.service.observes:
            subject = subjects.live_filter(source)
            self._subscriptions.append(await self._bus.nc.subscribe(subject, cb=self._receive))
        await self._bus.nc.flush()

    async def stop(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            try:
                await subscription.unsubscribe()
            except Exception as error:  # a closed connection has none left
                log.debug("could not unsubscribe", error=str(error))

    async def _receive(self, message: Msg) -> None:
        try:
            source, name = subjects.parse_live(message.subject)
            body: Any = codec.validate(MODELS[source], message.subject, message.data)
        except (InvalidRecord, InvalidSubject) as error:
            if message.subject != self._last_bad:  # whoever sends nonsense sends it every few seconds
                self._last_bad = message.subject
                log.warning("a sample cannot be read", error=str(error)[:500])
            return
        world = self._world
        async with world.lock.writer:
            world.service.observe(world.state, Sample(source, name, body), world.clock.now(monotonic()))
        self._on_sample()
