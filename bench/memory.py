"""How much memory each service holds of a cluster at rest, against the bytes of the records that it reads.

All four run as processes of their own, and have heard the heartbeats of all nodes, with what each replica uses. Of that
world pooler and builder read little, so each has a second row with functions and builds. What one record takes is what
exceeds the same process on an empty log. At full size the same processes then stay for ten minutes: what it costs them
to listen (`bench.idle`).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import uvloop

from bench import idle
from bench.harness import Figure, Options, Row, growth
from bench.processes import Stage, stage
from bench.raw import BatchWriter, Raw, raw
from bench.resting import QUIET_SECONDS, SERVICES, domains, resting
from bench.settled import settled
from services.builder.service import service as builder
from services.pooler.service import service as pooler
from services.routes.service import service as routes
from services.scheduler.service import service as scheduler
from shared import codec, subjects
from shared.model.build import BuildRequest
from shared.model.function import Function, Pooling
from shared.model.pool import Runtime
from shared.model.run import PortSpec, RunSpec
from shared.runtime.follower import Follower, Restarted
from shared.runtime.world import World
from shared.service import Service

MOST_MB, AIM_MB = 500, 250
HEARD_SECONDS = 22
"""Two of the longest intervals between the heartbeats of one node."""
IDLE_SECONDS = 600
MEGABYTE = 1_000_000
NAMESPACES, LIMIT = 100, 16
VALUES: Mapping[str, Service[Any]] = {
    "scheduler": scheduler(), "routes": routes(), "pooler": pooler(), "builder": builder(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """Resident megabytes of one service; how many records it reads, and their megabytes."""

    resident_mb: float
    records: int
    record_mb: float


Resting = tuple[Mapping[str, Held], idle.Rest | None]
"""What each service holds, and what it costs it to listen, where that was asked for."""


def run(options: Options) -> Iterable[Row]:
    nodes, replicas, hosts = options.size(5000, 300), options.size(100_000, 3000), options.size(10_000, 300)
    full, rest = _world(nodes, replicas, hosts, options, options.size(IDLE_SECONDS, 0))
    size = f"{nodes:,} nodes, {replicas:,} assignments, {hosts:,} hosts"
    for name in SERVICES:
        yield _row(name, full[name], size)
    if rest is not None:
        yield from idle.rows(rest, size, IDLE_SECONDS)
    functions, builds = options.size(100_000, 2000), options.size(10_000, 200)
    others = uvloop.run(_others(functions, builds, options.size(3, 1)))
    theirs = f"{functions:,} functions, {builds:,} queued builds"
    for name in ("pooler", "builder"):
        yield _row(name, others[name], theirs)
    if options.quick:
        return
    empty, _ = uvloop.run(_resting([], options, 0))
    small, _ = _world(nodes // 10, replicas // 10, hosts // 10, options, 0)
    small_others = uvloop.run(_others(functions // 10, builds // 10, 3))
    for name in ("scheduler", "routes"):
        yield _growth(name, full, small, empty, size)
    for name in ("pooler", "builder"):
        yield _growth(name, others, small_others, empty, theirs)


def _world(nodes: int, replicas: int, hosts: int, options: Options, idle_seconds: float) -> Resting:
    log = [*settled(nodes, replicas).log, *domains(hosts)]
    return uvloop.run(_resting(log, options, options.size(HEARD_SECONDS, 1), idle_seconds))


def _row(name: str, held: Held, size: str) -> Figure:
    megabytes = held.resident_mb
    size = f"{size}: it reads {held.records:,} records"
    return Figure(
        f"memory of the {name}", megabytes, "MB", size, held.record_mb, megabytes / max(held.record_mb, 0.001),
        f"≤ {MOST_MB} MB", f"≤ {AIM_MB} MB", megabytes <= MOST_MB, megabytes <= AIM_MB,
    )  # fmt: skip


def _growth(
    name: str, full: Mapping[str, Held], small: Mapping[str, Held], empty: Mapping[str, Held], size: str
) -> Figure:
    each = [(held[name].resident_mb - empty[name].resident_mb) / held[name].records for held in (full, small)]
    return growth(f"memory of the {name}, one record", each[0], each[1], size)


async def _resting(log: Iterable[Raw], options: Options, heard_seconds: float, idle_seconds: float = 0) -> Resting:
    async with resting(log, options.size(QUIET_SECONDS, 1)) as (on, services):
        await asyncio.sleep(heard_seconds)
        resident = {name: process.resident_mb() for name, process in services.items()}
        rest = await idle.rest(on, services, idle_seconds) if idle_seconds else None
        return {name: await _held(on, name, megabytes) for name, megabytes in resident.items()}, rest


async def _others(function_count: int, build_count: int, quiet_seconds: float) -> Mapping[str, Held]:
    async with stage() as on:
        await BatchWriter(on.bus).write([*_functions(function_count), *_builds(build_count)])
        services = await on.services("pooler", "builder")
        await on.quiet(quiet_seconds)
        return {name: await _held(on, name, process.resident_mb()) for name, process in services.items()}


def _functions(count: int) -> Iterator[Raw]:
    """Sixteen share a worker, which is full."""
    run = RunSpec(image="host", command=("host",), ports=(PortSpec(name="http", container_port=80),))
    yield raw(subjects.RUNTIME.subject("python"), codec.encode(Runtime(run=run)))
    for number in range(count):
        worker = number // LIMIT
        function = Function(
            runtime="python", handler="main.handle", artifact="v1", pooling=Pooling(worker=f"w-{worker}")
        )
        yield raw(subjects.FUNCTION.subject(f"ns-{worker % NAMESPACES}", f"f-{number}"), codec.encode(function))


def _builds(count: int) -> Iterator[Raw]:
    for number in range(count):
        request = BuildRequest(owner=f"owner-{number % 200}", source_digest=f"sha256:{number:064d}", cache_key="web")
        yield raw(subjects.BUILD.subject("shop", f"app-{number % 50}", f"{number:026d}"), codec.encode(request))


async def _held(on: Stage, name: str, resident_mb: float) -> Held:
    """Count the last version of every subject that the service follows."""
    follower = Follower(on.bus, World(VALUES[name]).filters())
    await follower.start()
    found: dict[str, int] = {}
    while not follower.caught_up:
        batch = await follower.next(None)
        assert not isinstance(batch, Restarted), "the follower had to load anew"
        found.update({message.subject: len(message.subject) + len(message.body) for message in batch})
    await follower.stop()
    return Held(resident_mb, len(found), sum(found.values()) / MEGABYTE)
