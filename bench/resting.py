"""A cluster at rest under all four services, each a process of its own, and a fleet that sends its heartbeats."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager

from bench.process import Process
from bench.processes import Stage, stage
from bench.raw import BatchWriter, Raw, raw
from shared import codec, subjects
from shared.model.domain import Domain

SERVICES = ("scheduler", "routes", "pooler", "builder")
QUIET_SECONDS = 3


def domains(count: int) -> Iterator[Raw]:
    """One hostname for each of the first environments of a settled cluster."""
    for number in range(count):
        domain = Domain(hostname=f"app-{number}.example.com", environment=f"app-{number}/production")
        yield raw(subjects.DOMAIN.subject("shop", f"d-{number}"), codec.encode(domain))


@asynccontextmanager
async def resting(
    log: Iterable[Raw], quiet_seconds: float = QUIET_SECONDS
) -> AsyncIterator[tuple[Stage, Mapping[str, Process]]]:
    """The log is stored, every service leads, has written what it had to, and has heard every node."""
    async with stage() as on:
        await BatchWriter(on.bus).write(log)
        _, services = await asyncio.gather(fleet(on), on.services(*SERVICES))
        await on.quiet(quiet_seconds)
        yield on, services


async def fleet(on: Stage) -> Process:
    """Every node of the log, from then on; returns once it has read the log."""
    ready = on.folder / "fleet-is-ready"
    process = on.start("bench.fleet", str(ready))

    async def is_ready() -> bool:
        process.check()
        return await asyncio.to_thread(ready.exists)

    await on.until(is_ready, "the fleet has not read the log")
    return process
