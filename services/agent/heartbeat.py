"""The heartbeat: every few seconds what the node and its replicas use, on `steer.live.node.<node>`.

It is telemetry: one that cannot be sent is not kept. How often it comes the scheduler says, in `steer.fleet`.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

import psutil
import structlog

from services.agent import reads
from services.agent.node import MIB
from shared import codec, subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.model.live import InstanceUsage, NodeSample
from shared.model.node import Fleet
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.runtime.records import version_of

log = structlog.get_logger(__name__)

DEFAULT_INTERVAL_SECONDS = float(Fleet().heartbeat_interval_seconds)


class Usage:
    """CPU and memory of process groups; CPU is that since the last sample, 100 = one core."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        psutil.cpu_percent(None)

    def sample(self, groups: Mapping[str, int], interval_seconds: float) -> NodeSample:
        """`groups` are the process groups by assignment."""
        names = {group: name for name, group in groups.items()}
        usage = dict.fromkeys(groups, InstanceUsage())
        seen: dict[int, psutil.Process] = {}
        for pid in psutil.pids() if names else ():
            try:
                name = names.get(os.getpgid(pid))
                if name is None:
                    continue
                seen[pid] = process = self._processes.get(pid) or psutil.Process(pid)
                usage[name] = _sum(usage[name], process)
            except (psutil.Error, OSError):
                continue
        self._processes = seen
        return NodeSample(
            interval_seconds=interval_seconds,
            cpu_percent=psutil.cpu_percent(None),
            memory_used_mb=round(psutil.virtual_memory().used / MIB, 1),
            instances=usage,
        )


def _sum(usage: InstanceUsage, process: psutil.Process) -> InstanceUsage:
    return InstanceUsage(
        cpu_percent=round(usage.cpu_percent + process.cpu_percent(None), 1),
        memory_mb=round(usage.memory_mb + process.memory_info().rss / MIB, 1),
    )


class Heartbeat:
    """Beats while `beating` is set. `groups` tells the process groups of the replicas that run."""

    def __init__(self, node: str, groups: Callable[[], Mapping[str, int]]) -> None:
        self._node = node
        self._groups = groups
        self._usage = Usage()
        self._changed = asyncio.Event()
        self.interval_seconds = DEFAULT_INTERVAL_SECONDS
        self.beating = asyncio.Event()

    async def run(self, bus: Bus) -> None:
        while True:
            await self.beating.wait()
            if bus.connected.is_set():
                sample = await asyncio.to_thread(self._usage.sample, dict(self._groups()), self.interval_seconds)
                try:
                    await bus.publish(subjects.live_node(self._node), codec.encode(sample))
                except Exception as error:  # whatever kept this one from being sent, the next one follows
                    log.debug("a heartbeat was not sent", reason=str(error))
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval_seconds):
                    await self._changed.wait()

    async def follow_fleet(self, bus: Bus) -> None:
        """Take the interval from `steer.fleet`; without such a record the default holds."""
        follower = Follower(bus, [reads.fleet()], name=f"agent-{self._node}-fleet")
        await follower.start()
        try:
            while True:
                batch = await follower.next(None)
                if isinstance(batch, Restarted):
                    continue
                for message in batch:
                    try:
                        self.set_fleet(version_of(message).record)
                    except (InvalidRecord, InvalidSubject) as error:
                        log.error("the fleet record cannot be read; the interval stays", reason=str(error))
        finally:
            await follower.stop()

    def set_fleet(self, fleet: object) -> None:
        seconds = float(fleet.heartbeat_interval_seconds) if isinstance(fleet, Fleet) else DEFAULT_INTERVAL_SECONDS
        if seconds != self.interval_seconds:
            log.info("the heartbeat interval changed", seconds=seconds)
            self.interval_seconds = seconds
            self._changed.set()
