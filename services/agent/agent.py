"""The agent's loop: follow the assignments, reconcile, act, report.

Everything that may change what is to be done (a message, a change of a replica, a `not_before` that has come) only asks
for another look; `reconcile` then looks at all. Before a load is complete nothing is started, stopped or reported, but
what runs is watched.
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog

from services.agent import node, reads
from services.agent.assignments import Assigned, Assignments
from services.agent.clock import ServerClock, SteadyClock
from services.agent.config import AgentConfig
from services.agent.driver import Driver
from services.agent.heartbeat import Heartbeat
from services.agent.journal import Entry, Journal
from services.agent.reconcile import Action, Wanted, World, reconcile
from services.agent.replica import Replica, Surroundings
from services.agent.reports import Reports
from services.agent.snapshots import Snapshots
from services.agent.volumes import Volumes
from shared import subjects
from shared.errors import InvalidRecord, SteerError
from shared.model.assignment import Instance, InstanceState
from shared.model.node import Node
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.runtime.process import until_stopped

log = structlog.get_logger(__name__)

RETRY_SECONDS = (0.1, 5.0)
FLUSH_SECONDS = 3.0


class Agent:
    """One node. `adopt`, then `run`, then `leave`."""

    def __init__(self, config: AgentConfig, driver: Driver) -> None:
        self._config = config
        self._driver = driver
        self._bus: Bus | None = None
        self._look = asyncio.Event()
        self._journal = Journal(config.data_dir / "replicas")
        self._steady = SteadyClock()
        volumes = Volumes(config.data_dir / "volumes")
        self._around = Surroundings(driver, self._journal, volumes, config.address, self._look.set, self._steady.now)
        self._replicas: dict[str, Replica] = {}
        self._assignments = Assignments()
        self._loaded = False
        self._answered: dict[str, tuple[int, Entry]] = {}
        self._held: set[str] = set()
        self._said_held: set[str] = set()
        self._ever_registered = False
        self._clock = ServerClock()
        self._snapshots = Snapshots(config, volumes, self._clock, self._steady.now)
        self._reports = Reports(config.node, subjects.INSTANCE, Instance)
        self._heartbeat = Heartbeat(config.node, self._groups)

    def adopt(self) -> None:
        """Take over what an earlier agent of this data directory has left."""
        for entry in self._journal.load():
            replica = self._replicas[entry.assignment] = Replica(entry, self._around)
            replica.adopt()

    async def run(self, bus: Bus, stop: asyncio.Event) -> None:
        """Work until `stop`. Raises `Unavailable` when the connection is gone for good."""
        self._bus = bus
        work = [
            asyncio.create_task(self._follow(bus), name="follow assignments"),
            asyncio.create_task(self._heartbeat.follow_fleet(bus), name="follow fleet"),
            asyncio.create_task(self._heartbeat.run(bus), name="heartbeat"),
            asyncio.create_task(self._act_for_ever(), name="reconcile"),
            asyncio.create_task(self._snapshots.run(bus), name="snapshots"),
        ]
        reporting = asyncio.create_task(self._reports.run(bus), name="report")
        try:
            await until_stopped(bus, stop, [*work, reporting])  # a defect ends the agent; its replicas go on
            await cancel(*work)
            await self._end(bus)
        finally:
            await cancel(*work, reporting)

    def states(self) -> list[InstanceState]:
        """The state of each replica that is here, ended ones included."""
        return [replica.entry.state for replica in self._replicas.values()]

    @property
    def reports_waiting(self) -> int:
        return self._reports.waiting

    @property
    def problem(self) -> str:
        """Why it does not follow its assignments; empty when it does."""
        if self._bus is None or not self._bus.connected.is_set():
            return "NATS is away"
        return "" if self._loaded else "the assignments are not loaded"

    async def leave(self) -> None:
        """Stop watching. What runs goes on, for the next agent to adopt."""
        await asyncio.gather(*(replica.leave() for replica in self._replicas.values()))

    async def stop_replicas(self) -> None:
        """Stop all of them, each with its grace."""
        for replica in self._replicas.values():
            replica.stop()
        await asyncio.gather(*(replica.stopped() for replica in self._replicas.values()))

    async def _end(self, bus: Bus) -> None:
        if self._config.stop_replicas_on_exit:
            await self.stop_replicas()
        if self._loaded:
            self._pass()
        if bus.connected.is_set() and not await self._reports.flush(FLUSH_SECONDS):
            log.warning("not all reports were stored; the next agent makes them again", node=self._config.node)

    async def _follow(self, bus: Bus) -> None:
        name = self._config.node
        follower = Follower(bus, [reads.assignments(name)], name=f"agent-{name}-assignments")
        await follower.start()
        try:
            while True:
                batch = await follower.next(None)
                if isinstance(batch, Restarted):
                    self._assignments, self._loaded = Assignments(), False
                    continue
                for message in batch:
                    self._assignments.take(message)
                    self._clock.hear(message.at)
                if follower.caught_up and not self._loaded:
                    await self._finish_load(bus)
                self._look.set()
        finally:
            await follower.stop()

    async def _finish_load(self, bus: Bus) -> None:
        """Learn what this node has reported, whether the log knows the node, and only then register."""
        delay, said = RETRY_SECONDS[0], False
        while True:
            try:
                await self._reports.learn(bus, {*self._assignments.names, *self._replicas})
                await self._register(bus)
                break
            except SteerError as error:
                if not said:
                    said = True
                    log.warning("cannot register yet; trying on", node=self._config.node, reason=str(error))
                await asyncio.sleep(delay * random.uniform(0.75, 1.25))
                delay = min(delay * 2, RETRY_SECONDS[1])
        self._answered.clear()  # the log may have other reports now than those that were made
        self._loaded = True
        log.info("following assignments", node=self._config.node, assignments=len(self._assignments.readable))

    async def _register(self, bus: Bus) -> None:
        name = self._config.node
        try:
            version = await records.get_own(bus, subjects.NODE, (name,))
        except InvalidRecord as error:
            log.error("the record of this node cannot be read; it is written anew", reason=str(error))
            await self._announce(bus, node.describe(self._config, (self._driver.name,)))
            version = await records.get_own(bus, subjects.NODE, (name,))
        known = version is not None and version.record is not None
        if not known:
            # Kept until the agent is started anew: once the node is registered, the next load would find it known.
            self._held = set(self._replicas)
        if version is not None:
            self._clock.hear(version.at)
        if version is not None and not known and self._ever_registered:
            self._heartbeat.beating.clear()
            log.error("this node was taken out of service: its record is deleted; start the agent anew to register it")
        else:
            described = node.describe(self._config, (self._driver.name,))
            if version is None or version.record != described:
                await self._announce(bus, described)
            self._ever_registered = True
            self._heartbeat.beating.set()

    async def _announce(self, bus: Bus, described: Node) -> None:
        await records.put(bus, subjects.NODE, (self._config.node,), described)
        log.info(
            "registered",
            node=self._config.node,
            platform=described.platform,
            cpu_millis=described.capacity.cpu_millis,
            memory_mb=described.capacity.memory_mb,
        )

    async def _act_for_ever(self) -> None:
        wait: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._look.wait()
            self._look.clear()
            wait = self._pass() if self._loaded else None

    def _pass(self) -> float | None:
        """Look at everything once and do what is to be done; in how many seconds to look again."""
        now = self._clock.now()
        outcome = reconcile(self._world(), now)
        for action in outcome.actions:
            self._act(action)
        return None if outcome.wake_at is None else max(0.0, (outcome.wake_at - now).total_seconds())

    def _world(self) -> World:
        readable = self._assignments.readable
        names = {*readable, *self._assignments.deleted, *self._replicas}
        latest = {name: report for name in names if (report := self._reports.latest(name)) is not None}
        return World(
            wanted={name: Wanted(each.record.desired, each.record.not_before) for name, each in readable.items()},
            deleted=frozenset(self._assignments.deleted),
            unreadable=frozenset(self._assignments.unreadable),
            replicas={name: replica.entry.state for name, replica in self._replicas.items()},
            reported={name: report.state for name, report in latest.items()},
            held=frozenset(self._held),
        )

    def _act(self, action: Action) -> None:
        name = action.assignment
        match action.kind:
            case "start":
                replica = Replica(_entry(name, self._assignments.readable[name], self._steady.now()), self._around)
                self._replicas[name] = replica
                replica.start()
            case "stop":
                self._replicas[name].stop()
            case "answer":
                self._answer(action)
            case "forget":
                self._forget(name)
            case "hold" if name not in self._said_held:
                self._said_held.add(name)
                log.warning("a replica without an assignment is kept: the log did not know this node", assignment=name)

    def _answer(self, action: Action) -> None:
        name = action.assignment
        sequence = self._assignments.readable[name].sequence
        latest = self._reports.latest(name)
        if action.state is not None:
            self._reports.put(name, _without_replica(action, sequence, latest, self._steady.now()))
        elif (replica := self._replicas.get(name)) is not None:
            answered = self._answered.get(name)
            if answered is None or answered[0] != sequence or answered[1] is not replica.entry:
                self._answered[name] = (sequence, replica.entry)
                self._reports.put(name, replica.entry.instance(sequence))
        elif latest is not None:
            self._reports.put(name, latest.model_copy(update={"assignment_sequence": sequence}))

    def _forget(self, name: str) -> None:
        """The assignment is gone, and nothing of it runs: so go its report and its entry in the journal."""
        self._replicas.pop(name, None)
        self._answered.pop(name, None)
        self._assignments.deleted.discard(name)
        self._reports.put(name, None)
        try:
            self._journal.remove(name)
        except OSError as error:
            log.error("the journal cannot be written", assignment=name, reason=str(error))

    def _groups(self) -> Mapping[str, int]:
        return {name: pid for name, replica in self._replicas.items() if (pid := replica.pid) is not None}


def _entry(name: str, assigned: Assigned, now: datetime) -> Entry:
    record = assigned.record
    return Entry(
        assignment=name,
        sequence=assigned.sequence,
        workload=record.workload.key,
        run=record.run,
        config_hash=record.config_hash,
        volume_epoch=record.volume_epoch,
        since=now,
    )


def _without_replica(action: Action, sequence: int, latest: Instance | None, now: datetime) -> Instance:
    """An answer about something that is not here."""
    assert action.state is not None
    since = latest.since if latest is not None and latest.state == action.state else now
    return Instance(assignment_sequence=sequence, state=action.state, message=action.message, since=since)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
