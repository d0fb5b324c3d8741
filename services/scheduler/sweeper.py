"""The sweeper, `python -m services.scheduler.sweeper`: a doer that deletes images which no kept release needs.

Follows  `steer.image_sweep.>`, the orders of the scheduler, and its own answers.
Writes   `steer.image_swept.<project>.<app>.<tag>`: `done`, or `failed` with the reason, and it tries again.

Images are pushed to `<project>/<app>:<build>` in lower case, whatever the case of the build's id. The tag's digest is
deleted, unless it is among those that kept releases run with: equal sources build equal images. A tag that is not there
has been swept. When the scheduler has taken an order back, the answer goes too. Several sweepers do no harm.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from services.scheduler.registry import Registry, RegistryFailed
from shared import subjects
from shared.errors import ConfigurationError, InvalidRecord, InvalidSubject, Unavailable
from shared.model.image_sweep import ImageSweep, ImageSwept
from shared.runtime import logs, records, streams, tasks
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.process import connected, run, starting, until_stopped
from shared.runtime.settings import Settings
from shared.subjects import Key

log = structlog.get_logger(__name__)

BACKOFF_SECONDS = (10.0, 600.0)


@dataclass(slots=True)
class Attempt:
    """When an order may be tried again, on the monotonic clock, and how long the wait after the next failure is."""

    at: float = 0.0
    wait_seconds: float = BACKOFF_SECONDS[0]


class Sweeper:
    """`run` until it is cancelled. `backoff_seconds` are the first and the longest wait after a failure."""

    def __init__(self, bus: Bus, registry: Registry, backoff_seconds: tuple[float, float] = BACKOFF_SECONDS) -> None:
        self._bus = bus
        self._registry = registry
        self._first_seconds, self._longest_seconds = backoff_seconds
        self._orders: dict[Key, ImageSweep] = {}
        self._answers: dict[Key, ImageSwept] = {}
        self._attempts: dict[Key, Attempt] = {}

    async def run(self) -> None:
        filters = [subjects.IMAGE_SWEEP.subject_filter, subjects.IMAGE_SWEPT.subject_filter]
        follower = Follower(self._bus, filters, name="sweeper")
        await follower.start()
        wait: float | None = None
        try:
            while True:
                batch = await follower.next(wait)
                if isinstance(batch, Restarted):
                    self._orders, self._answers, wait = {}, {}, None
                    continue
                for message in batch:
                    self._take(message)
                if follower.caught_up:
                    wait = await self._work()
        finally:
            await follower.stop()

    def _take(self, message: Message) -> None:
        try:
            version = records.version_of(message)
        except (InvalidRecord, InvalidSubject) as error:
            log.error("cannot be read, and is left alone", subject=message.subject, reason=str(error))
            return
        match version.record:
            case ImageSweep() as order:
                self._orders[version.key] = order
            case ImageSwept() as answer:
                self._answers[version.key] = answer
            case _ if version.kind is subjects.IMAGE_SWEEP:
                self._orders.pop(version.key, None)
                self._attempts.pop(version.key, None)
            case _:
                self._answers.pop(version.key, None)

    async def _work(self) -> float | None:
        """Do what is due; in how many seconds the next is."""
        clock = asyncio.get_running_loop().time
        for key in sorted(self._answers.keys() - self._orders.keys()):
            await self._answer(key, None)
        open_ = [key for key in sorted(self._orders) if not self._done(key)]
        for key in open_:
            attempt = self._attempts.setdefault(key, Attempt(wait_seconds=self._first_seconds))
            if attempt.at <= clock() and not await self._try(key):
                attempt.at = clock() + attempt.wait_seconds
                attempt.wait_seconds = min(2 * attempt.wait_seconds, self._longest_seconds)
        waits = [self._attempts[key].at - clock() for key in open_ if not self._done(key)]
        if self._answers.keys() - self._orders.keys():
            waits.append(self._first_seconds)
        return max(0.0, min(waits)) if waits else None

    def _done(self, key: Key) -> bool:
        answer = self._answers.get(key)
        return answer is not None and answer.state == "done"

    async def _try(self, key: Key) -> bool:
        """Sweep one and say what came of it; whether it is done."""
        try:
            found = await self._sweep(key, self._orders[key])
        except RegistryFailed as error:
            log.warning("an image cannot be swept now", image="/".join(key), reason=str(error))
            before = self._answers.get(key)
            if before is None or before.error != str(error):
                await self._answer(key, ImageSwept(state="failed", error=str(error), at=datetime.now(UTC)))
            return False
        log.info("swept", image="/".join(key), outcome=found)
        return await self._answer(key, ImageSwept(state="done", at=datetime.now(UTC)))

    async def _sweep(self, key: Key, order: ImageSweep) -> str:
        """What was found and done. Raises `RegistryFailed`."""
        repository, tag = "/".join(key[:2]).lower(), key[2].lower()
        digest = await self._registry.digest(repository, tag)
        if digest is None:
            return "there is no such tag"
        if digest in order.keep_digests:
            return f"{digest} stays: a kept release runs with it"
        await self._registry.delete(repository, digest)
        return f"{digest} deleted"

    async def _answer(self, key: Key, answer: ImageSwept | None) -> bool:
        """Whether it was stored; what was not is answered again later."""
        try:
            await records.put(self._bus, subjects.IMAGE_SWEPT, key, answer)
        except Unavailable as error:
            log.warning("an answer was not stored", image="/".join(key), reason=str(error))
            return False
        if answer is None:
            self._answers.pop(key, None)
        else:
            self._answers[key] = answer
        return True


async def sweep(settings: Settings, stop: asyncio.Event) -> None:
    """Run one sweeper until `stop`. Raises `ConfigurationError`, or `Unavailable` when the connection is gone."""
    async with Registry(settings.registry_url) as registry, connected(settings, "sweeper", stop) as bus:
        if bus is not None:
            await _sweep(bus, registry, stop)


async def _sweep(bus: Bus, registry: Registry, stop: asyncio.Event) -> None:
    await streams.ensure(bus)
    work = asyncio.create_task(Sweeper(bus, registry).run(), name="sweep")
    try:
        await until_stopped(bus, stop, [work])
    finally:
        await tasks.end(work)


def main() -> None:
    """Exit codes: 0 stopped, 1 the connection to the bus is gone for good, 2 a setting cannot be used."""
    with starting():
        settings = Settings.from_environment()
        if not settings.registry_url:
            raise ConfigurationError("STEER_REGISTRY_URL is not set; it names the registry, as in https://host:5000")
    logs.configure(settings, service="sweeper")
    run(lambda stop: sweep(settings, stop))


if __name__ == "__main__":
    main()
