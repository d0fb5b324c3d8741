"""Queued builds → all of them dispatched, durable: orders committed and seen by the workers, who report each at once.

The builder runs as its own process; 200 owners take turns on 100 workers, which this process plays: every order is
answered with a success, so that the same worker can be given the next build.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from statistics import median
from time import perf_counter

import uvloop

from bench.harness import Figure, Options, Row, growth
from bench.processes import Stage, stage
from bench.raw import BatchWriter, Raw, raw
from shared import codec, subjects
from shared.model.build import BuildPool, BuildRequest, BuildStatus
from shared.model.build_worker import BuildOrder, BuildReport, BuildWorker, WorkerConditions
from shared.runtime import records
from shared.runtime.follower import Follower, Restarted

POOL = "default"
OWNERS = 200
PATIENCE_SECONDS = 60
READY = WorkerConditions(scheduled=True, initialized=True, containers_ready=True, ready=True)


def run(options: Options) -> Iterable[Row]:
    builds, workers = options.size(10_000, 500), options.size(100, 50)
    rate = median([uvloop.run(_once(builds, workers)) for _ in range(options.runs)])
    size = f"{builds:,} queued builds, {OWNERS} owners, {workers} workers"
    yield Figure("builder, dispatches durable", rate, "/s", size, target="≥ 1,000/s", met=rate >= 1000)
    if options.quick:
        return
    small = median([uvloop.run(_once(builds // 10, workers)) for _ in range(options.runs)])
    yield growth("builder, one dispatch", 1 / rate, 1 / small, size)


async def _once(builds: int, workers: int) -> float:
    """Dispatches per second, from the first worker that registers to the last order that is seen."""
    async with stage() as on:
        writer = BatchWriter(on.bus)
        pool = BuildPool(max_workers=workers, lease_ttl_seconds=3600, build_timeout_seconds=36_000)
        await records.put(on.bus, subjects.BUILD_POOL, (POOL,), pool)
        await writer.write([_request(number) for number in range(builds)])
        await on.service("builder")
        await _queued(on, builds)
        follower = Follower(on.bus, [subjects.BUILD_ORDER.subject_filter], start=await on.last_sequence() + 1)
        await follower.start()
        before = perf_counter()
        await writer.write([_worker(number) for number in range(workers)])
        await _serve(follower, writer, builds)
        seconds = perf_counter() - before
        await follower.stop()
        return builds / seconds


def _request(number: int) -> Raw:
    key = ("shop", f"app-{number % 50}", f"{number:026d}")
    request = BuildRequest(owner=f"owner-{number % OWNERS}", source_digest=f"sha256:{number:064d}", cache_key=key[1])
    return raw(subjects.BUILD.subject(*key), codec.encode(request))


def _worker(number: int) -> Raw:
    record = BuildWorker(ordinal=number, phase="running", conditions=READY, created_at=datetime.now(UTC))
    return raw(subjects.BUILD_WORKER.subject(POOL, f"w-{number}"), codec.encode(record))


async def _queued(on: Stage, builds: int) -> None:
    await on.quiet()
    found = await records.load(on.bus, [subjects.BUILD_STATUS.subject_filter])
    queued = sum(isinstance(each.record, BuildStatus) and each.record.state == "queued" for each in found)
    assert queued == builds, f"{queued} of {builds} are queued"


async def _serve(follower: Follower, writer: BatchWriter, builds: int) -> None:
    """Play the workers, until every build was given out."""
    seen: set[str] = set()
    last = perf_counter()
    while len(seen) < builds:
        batch = await follower.next(1)
        assert not isinstance(batch, Restarted), "the follower had to load anew"
        reports = []
        for message in batch:
            version = records.version_of(message)
            if isinstance(version.record, BuildOrder) and version.record.token not in seen:
                seen.add(version.record.token)
                reports.append(_report(version.key[1], version.record))
        if reports:
            await writer.write(reports)
            last = perf_counter()
        assert perf_counter() - last < PATIENCE_SECONDS, f"{len(seen)} of {builds} were dispatched"


def _report(worker: str, order: BuildOrder) -> Raw:
    report = BuildReport(
        build=order.build, attempt=order.attempt, token=order.token, state="succeeded", image_digest="sha256:1"
    )
    return raw(subjects.BUILD_REPORT.subject(POOL, worker, order.build.rpartition("/")[2]), codec.encode(report))
