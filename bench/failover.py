"""The leader of several schedulers goes, an instance dies at once → another has opened its term and replaced it.

Killed with -9, its lease has to run out. Stopped cleanly, it gives the lease back and a standby goes on at once. The
standbys have loaded the log and looked at it before, and heartbeats go on all the time.
"""

import signal
from collections.abc import Iterable
from functools import partial
from statistics import median
from time import perf_counter

import uvloop

from bench.harness import Figure, Options, Row, growth
from bench.process import Process
from bench.processes import stage
from bench.raw import BatchWriter
from bench.reaction import replacement_of, report_death, see, victims_of
from bench.settled import settled
from shared import subjects
from shared.runtime.follower import Follower
from shared.runtime.settings import Settings

KILL_ALLOWANCE_SECONDS = 0.5
CLEAN_SECONDS = 0.1


def run(options: Options) -> Iterable[Row]:
    nodes, assignments = options.size(5000, 300), options.size(100_000, 3000)
    ttl = Settings().lease_ttl_seconds
    size = f"{nodes:,} nodes, {assignments:,} assignments"
    killed, stopped = uvloop.run(_measure(nodes, assignments, options.runs))
    most = ttl + KILL_ALLOWANCE_SECONDS
    yield Figure(
        "failover, leader killed with -9", killed, "s", size, ttl, killed / ttl, f"≤ TTL + {KILL_ALLOWANCE_SECONDS} s",
        met=killed <= most,
    )  # fmt: skip
    yield Figure(
        "failover, leader stopped cleanly", stopped * 1e3, "ms", size, target="≤ 100 ms", met=stopped <= CLEAN_SECONDS
    )
    if options.quick:
        return
    small_killed, small_stopped = uvloop.run(_measure(nodes // 10, assignments // 10, options.runs))
    yield growth("failover, killed", killed, small_killed, size)
    yield growth("failover, stopped", stopped, small_stopped, size)


async def _measure(nodes: int, assignments: int, runs: int) -> tuple[float, float]:
    """Medians in seconds."""
    history = settled(nodes, assignments)
    victims = victims_of(history)
    found: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
    async with stage() as on:
        await BatchWriter(on.bus).write(history.log)
        on.beat(history.node_names())
        leader = await on.scheduler()
        term = subjects.TERM.subject("scheduler")
        follower = Follower(on.bus, [subjects.ASSIGNMENT.subject_filter, term], start=await on.last_sequence() + 1)
        await follower.start()
        for _ in range(runs):
            standbys = [on.start("services.scheduler") for _ in found]  # they load side by side
            for standby in standbys:
                await on.until(partial(_stands_by, standby), "the standby is not ready to take over")
            for number, seconds in found.items():
                await on.quiet()
                key, sequence = victims.pop()
                before = perf_counter()
                leader.signal(number)
                await report_death(on, key, sequence)
                await see(follower, replacement_of(key), lambda message: message.subject == term)
                seconds.append(perf_counter() - before)
                leader.stop()
                leader = await on.led_by(*standbys)
                standbys.remove(leader)
        await follower.stop()
    return median(found[signal.SIGKILL]), median(found[signal.SIGTERM])


async def _stands_by(standby: Process) -> bool:
    return await standby.ready() and bool((await standby.metrics())["steer_rehearsed"])
