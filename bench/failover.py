"""Two schedulers; the leader goes, an instance dies at once → the other one has opened its term and replaced it.

Killed with -9, its lease has to run out. Stopped cleanly, it gives the lease back and the standby goes on at once.
"""

import asyncio
import signal
from collections.abc import Iterable
from statistics import median
from time import perf_counter

import uvloop

from bench.harness import Figure, Options, Row
from bench.processes import stage
from bench.raw import BatchWriter
from bench.reaction import replacement_of, report_death, see, victims_of
from bench.settled import settled
from shared import subjects
from shared.runtime.follower import Follower
from shared.runtime.settings import Settings

NODES, ASSIGNMENTS = 50, 500
STANDBY_SECONDS = 1.5
KILL_ALLOWANCE_SECONDS = 0.5
CLEAN_SECONDS = 0.1


def run(options: Options) -> Iterable[Row]:
    runs = options.size(5, 1)
    ttl = Settings().lease_ttl_seconds
    size = f"{NODES} nodes, {ASSIGNMENTS} assignments"
    killed, stopped = uvloop.run(_measure(runs))
    most = ttl + KILL_ALLOWANCE_SECONDS
    yield Figure(
        "failover, leader killed with -9", killed, "s", size, ttl, killed / ttl, f"≤ TTL + {KILL_ALLOWANCE_SECONDS} s",
        met=killed <= most,
    )  # fmt: skip
    yield Figure(
        "failover, leader stopped cleanly", stopped * 1e3, "ms", size, target="≤ 100 ms", met=stopped <= CLEAN_SECONDS
    )


async def _measure(runs: int) -> tuple[float, float]:
    """Medians in seconds."""
    history = settled(NODES, ASSIGNMENTS)
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
            for number, seconds in found.items():
                standby = on.start("services.scheduler")
                await asyncio.sleep(STANDBY_SECONDS)  # the standby loads the log; nothing shows that it is done
                await on.quiet()
                key, sequence = victims.pop()
                before = perf_counter()
                leader.signal(number)
                await report_death(on, key, sequence)
                await see(follower, replacement_of(key), lambda message: message.subject == term)
                seconds.append(perf_counter() - before)
                leader.stop()
                await on.led_by(standby)
                leader = standby
        await follower.stop()
    return median(found[signal.SIGKILL]), median(found[signal.SIGTERM])
