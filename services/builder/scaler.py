"""`python -m services.builder.scaler`: runs as many local workers as `WorkerScale` says. A doer: it decides nothing.

Anything else that can run workers takes its place: it follows one record, `steer.worker_scale.<pool>`, keeps the workers
of the ordinals 0 to `replicas` - 1 running, and makes those in `replace` anew.
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import structlog
import typer

from services.builder.local_workers import LocalWorkers
from shared import subjects
from shared.errors import ConfigurationError, InvalidRecord, InvalidSubject, SteerError
from shared.model.base import NAME_PATTERN
from shared.model.build_worker import WorkerScale
from shared.runtime import logs, records, tasks
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.runtime.process import connected, run, starting, until_stopped
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

RETRY_SECONDS = 0.5


class Workers(Protocol):
    """What runs workers, by ordinal."""

    def name(self, ordinal: int) -> str: ...

    def ordinals(self) -> set[int]: ...

    async def start(self, ordinal: int) -> None: ...

    async def stop(self, ordinal: int) -> None:
        """Returns when it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Steps:
    start: tuple[int, ...]
    stop: tuple[int, ...]


def steps(scale: WorkerScale, running: set[int], anew: set[int]) -> Steps:
    """What is to be done: the highest go first, `anew` are stopped, and started at the next look. Pure."""
    wanted = set(range(scale.replicas))
    stop = (running - wanted) | (running & anew)
    return Steps(tuple(sorted(wanted - running)), tuple(sorted(stop, reverse=True)))


class Scaler:
    """`run` until `stop` is set; then every worker is ended, after what it builds."""

    def __init__(self, bus: Bus, pool: str, workers: Workers) -> None:
        self._bus, self._pool, self._workers = bus, pool, workers
        self._scale: WorkerScale | None = None
        self._anew: set[int] = set()
        self._look = asyncio.Event()
        self._stopping: dict[int, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Raises `Unavailable` when the connection is gone for good."""
        work = [asyncio.create_task(self._follow()), asyncio.create_task(self._act())]
        try:
            await until_stopped(self._bus, stop, work)
        finally:
            await tasks.end(*work)
            for ordinal in self._workers.ordinals():
                self._begin_to_stop(ordinal)
            await asyncio.gather(*self._stopping.values(), return_exceptions=True)

    async def _follow(self) -> None:
        follower = Follower(self._bus, [subjects.WORKER_SCALE.subject(self._pool)], name=f"scaler-{self._pool}")
        await follower.start()
        try:
            while True:
                batch = await follower.next(None)
                if isinstance(batch, Restarted):
                    continue  # what runs stays until the log says otherwise
                for message in batch:
                    try:
                        record = records.version_of(message).record
                    except (InvalidRecord, InvalidSubject) as error:
                        log.error("the scale cannot be read; the workers stay as they are", reason=str(error))
                        continue
                    self._take(record if isinstance(record, WorkerScale) else WorkerScale())
        finally:
            await follower.stop()

    def _take(self, scale: WorkerScale) -> None:
        """A name in `replace` asks once per version: it stays there until the builder has seen the new worker."""
        self._scale = scale
        names = {self._workers.name(ordinal): ordinal for ordinal in range(scale.replicas)}
        self._anew |= {names[name] for name in scale.replace if name in names}
        log.info("the scale", pool=self._pool, replicas=scale.replicas, replace=scale.replace, reason=scale.reason)
        self._look.set()

    async def _act(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if self._scale is None:
                continue
            todo = steps(self._scale, self._workers.ordinals(), self._anew)
            for ordinal in todo.stop:
                self._begin_to_stop(ordinal)
            for ordinal in todo.start:
                await self._workers.start(ordinal)

    def _begin_to_stop(self, ordinal: int) -> None:
        """Beside everything else: it may take as long as a build."""
        self._anew.discard(ordinal)
        if ordinal not in self._stopping:
            self._stopping[ordinal] = asyncio.create_task(self._stop(ordinal))

    async def _stop(self, ordinal: int) -> None:
        try:
            await self._workers.stop(ordinal)
            await self._forget(self._workers.name(ordinal))
        finally:
            del self._stopping[ordinal]
            self._look.set()

    async def _forget(self, name: str) -> None:
        """A worker that was ended takes its record back; one that had died cannot."""
        key = (self._pool, name)
        while not self._bus.closed.is_set():
            try:
                version = await records.get_own(self._bus, subjects.BUILD_WORKER, key)
                if version is not None and version.record is not None:
                    await records.put(self._bus, subjects.BUILD_WORKER, key, None, expected=version.sequence)
                return
            except SteerError as error:
                log.warning("the record of a worker is left; trying again", worker=name, reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)


def _option(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, envvar=f"STEER_SCALER_{name.upper().replace('-', '_')}")


def main(
    *,
    data: Annotated[Path, _option("data", "Where the workers keep their logs and directories.")],
    pool: Annotated[str, _option("pool", "The pool whose workers it runs.")] = "default",
    prefix: Annotated[str, _option("prefix", "What the names of its workers begin with.")] = "worker",
    arguments: Annotated[list[str] | None, typer.Argument(help="After --: options for every worker.")] = None,
) -> None:
    """Run the local workers of a pool."""
    with starting():
        for option, text in (("pool", pool), ("prefix", prefix)):
            if not re.fullmatch(NAME_PATTERN[1:-1], text):
                raise ConfigurationError(f"--{option} {text!r}: not a DNS-1123 label")
        settings = Settings.from_environment()
        workers = LocalWorkers(pool, prefix, data.resolve(), arguments or ())
    logs.configure(settings, service="scaler", pool=pool)
    run(lambda stop: scale(settings, pool, workers, stop))


async def scale(settings: Settings, pool: str, workers: LocalWorkers, stop: asyncio.Event) -> None:
    """Run the workers of a pool until `stop`. Waits for a server that is away."""
    async with connected(settings, f"scaler-{pool}", stop) as bus:
        if bus is not None:
            await Scaler(bus, pool, workers).run(stop)


if __name__ == "__main__":
    typer.run(main)
