"""A whole world from one seed: the four services, agents, workers, proxies, users and troubles on one log; then quiet,
then order. `Mix` says which stories are told in it."""

from collections.abc import Callable
from random import Random
from typing import Any

from services.builder.config import BuilderConfig
from services.builder.service import service as builder
from services.pooler.service import service as pooler
from services.routes.service import service as routes
from services.scheduler.service import service as scheduler
from shared.model.node import Capacity, Node
from shared.service import Sample, Service
from shared.subjects import ASSIGNMENT, NOTICE, SNAPSHOT_ORDER, SNAPSHOT_PRUNE

from .agents import Agent
from .build_users import BuildUsers
from .build_workers import Workers
from .bus import Bus
from .clock import Timeline
from .convergence import Convergence
from .faults import Rates
from .function_users import FunctionUsers
from .interpreter import Instance
from .invariants import Invariants, Violation
from .keeper import Keeper
from .lease import Leases
from .log import Log
from .mix import Mix, mixed
from .pool_safety import MembersAreMeant
from .proxies import Proxy
from .restore import WhatIsRejectedIsKept
from .safety import NoStopUnderTraffic, OneReplicaOfAVolume
from .surroundings import NO_FLAWS, Flaws, Surroundings
from .trouble import Trouble
from .users import Users
from .visitors import CLUSTER_DOMAIN, Visitors

Makers = tuple[Callable[[], Service[Any]], ...]

FAULTY_SECONDS = 80.0
QUIET_SECONDS = 3600.0
"""The longest deadline is ten minutes, and a replica that kept failing is held back for five."""
LOOK_SECONDS = 2.0


def _routes() -> Service[Any]:
    return routes(CLUSTER_DOMAIN)


def _builder() -> Service[Any]:
    return builder(BuilderConfig(registry_address="r"))


SERVICES: Makers = (scheduler, _routes, pooler, _builder)


class World:
    """`run` raises `Violation` for what must never happen, and for what should have happened by the end."""

    def __init__(
        self,
        seed: int,
        *,
        services: Makers = SERVICES,
        flaws: Flaws = NO_FLAWS,
        rates: Rates | None = None,
        nodes: dict[str, Node] | None = None,
        replicated: bool | None = None,
        window_seconds: float | None = None,
        mix: Mix | None = None,
    ) -> None:
        self.random = random = Random(seed)
        self.timeline = timeline = Timeline()
        self.log = log = Log(lambda: timeline.server_now)
        self.mix = mix = mix or mixed(random)
        self.rates = rates = rates or _rates(random)
        three = random.random() < 0.5
        self.bus = bus = Bus(log, timeline, random, rates, replicated=three if replicated is None else replicated)
        around = Surroundings(timeline, random, log, bus, Leases(timeline, 3))
        self.instances: list[Instance[Any]] = [
            Instance(service, f"{service.name}-{number}", around, flaws)
            for make in services
            for number, service in enumerate(_instances(make, mix, random))
        ]
        nodes = nodes or _nodes(random)
        self.agents = [Agent(name, node, around, rates, self._telemetry) for name, node in nodes.items()]
        self._builds = BuildUsers(log, timeline, random, 10) if mix.builds else None
        self._functions = FunctionUsers(log, timeline, random, 5, 5) if mix.functions else None
        self.users = Users(log, timeline, random, list(nodes), mix, self._builds)
        scaled = self.users.environments[:3] if mix.scaling else ()
        self.visitors = Visitors(log, timeline, random, rates, scaled)
        self.proxies = [Proxy(f"edge-{n}", around, rates, self._telemetry, self.visitors) for n in range(2)]
        self.workers = Workers(around, rates, self._telemetry) if mix.builds else None
        self.trouble = Trouble(
            log, timeline, random, self.instances, self.agents, self.proxies, self.users, self.workers
        )
        window = random.choice((60.0, 100.0, 1e6)) if window_seconds is None else window_seconds
        for instance in self.instances:
            instance.longest_absence_seconds = window / 2
        self.keeper = Keeper(log, random, self.instances, window)
        self._watch()

    def _watch(self) -> None:
        """Who sees everything that is stored at once: what checks it, and who is told of it."""
        log = self.log
        self.safety = Invariants(log, NoStopUnderTraffic(self.proxies, lambda: self.timeline.seconds))
        self.convergence = Convergence(
            log, self.safety.view, self.instances, self.agents, self.proxies, self.visitors, self.mix
        )
        log.watch(self.safety)
        log.watch(WhatIsRejectedIsKept(log))
        if self.mix.functions:
            log.watch(MembersAreMeant(log))
        if self._builds is not None and self.workers is not None:
            self.convergence.expect_builds(self._builds.pool, self.workers)
        OneReplicaOfAVolume(self.agents)
        for agent in self.agents:
            agent.usage = self.visitors.percent
        self._tell_agents()

    def run(self) -> None:
        """Troubles for a while, then none; then all must come to order, and what sleeps must wake."""
        self.start()
        users = [self.users, self._builds, self._functions, self.visitors]
        for each in users:
            if each is not None:
                each.begin()
        self.trouble.begin()
        self.timeline.run(FAULTY_SECONDS)
        self.rates.calm()
        for each in users:
            if each is not None:
                each.rest()
        self.trouble.end()
        self.converge()
        if self.mix.scaling:
            self.visitors.turn()
            self.converge()

    def start(self) -> None:
        for process in (*self.agents, *self.instances, *self.proxies):
            process.start()
        self.keeper.begin()

    def converge(self) -> None:
        """Let time pass until everything is as it should be. Raises `Violation` with what is not, after an hour."""
        unmet = "nothing was looked at"
        end = self.timeline.seconds + QUIET_SECONDS
        while self.timeline.seconds < end:
            self.timeline.run(LOOK_SECONDS)
            unmet = self.convergence.unmet()
            if not unmet:
                self._nothing_was_overlooked()
                return
        raise Violation("liveness", unmet)

    def leader(self, name: str) -> Instance[Any]:
        """The instance of a service that decides."""
        return next(instance for instance in self.instances if instance.service.name == name and instance.leading)

    def _nothing_was_overlooked(self) -> None:
        """A state that is loaded afresh finds nothing to do either: no wake-up was lost. It may explain better why
        something waits: whoever waits is looked at again only when something has changed that could help."""
        for service in {instance.service.name: instance.service for instance in self.instances}.values():
            state = service.new_state()
            for sequence in self.log.last_per_subject(service.reads):
                stored = self.log.get(sequence)
                assert stored is not None
                if version := self.log.newest_readable(stored.subject):
                    service.fold(state, version)
            service.attend(state, self.timeline.server_now)
            plan = service.decide(state, self.timeline.server_now)
            for decision in plan.decisions:
                if any(change.kind is not NOTICE for change in decision.changes):
                    raise Violation("7", f"{service.name} would do this after a restart: {decision.outcome}")

    def _telemetry(self, sample: Sample) -> None:
        """Only a leader listens."""
        for instance in self.instances:
            if instance.up and instance.leading and sample.source in instance.service.observes:
                instance.later(self.random.uniform(0.001, 0.05), _observing(instance, sample))

    def _tell_agents(self) -> None:
        agents = {agent.name: agent for agent in self.agents}

        def deliver(stored: Any) -> None:
            for message in stored:
                if message.kind is ASSIGNMENT and message.key[0] in agents:
                    agents[message.key[0]].notify(message)
                elif message.kind in (SNAPSHOT_ORDER, SNAPSHOT_PRUNE) and message.key[0] in agents:
                    agents[message.key[0]].snapshots.look_soon()

        self.log.watch(deliver)


def _instances(make: Callable[[], Service[Any]], mix: Mix, random: Random) -> list[Service[Any]]:
    """A leader, and mostly a standby; not of a service that has nothing to do in this world."""
    service = make()
    idle = (service.name == "builder" and not mix.builds) or (service.name == "pooler" and not mix.functions)
    alone = idle or (service.name != "scheduler" and random.random() < 0.3)
    return [service] if alone else [service, make()]


def _observing(instance: Instance[Any], sample: Sample) -> Callable[[], None]:
    return lambda: instance.observe(sample)


def _nodes(random: Random) -> dict[str, Node]:
    nodes = {}
    for number in range(random.randint(3, 6)):
        labels = {"region": random.choice(("north", "south"))} | ({"disk": "ssd"} if random.random() < 0.5 else {})
        capacity = Capacity(cpu_millis=random.choice((600, 1000)), memory_mb=random.choice((1024, 1536)))
        nodes[f"node-{number}"] = node(labels, capacity, number)
    return nodes


def node(labels: dict[str, str], capacity: Capacity, number: int) -> Node:
    return Node(labels=labels, platform="linux/amd64", capacity=capacity, address=f"10.0.0.{number}")


def _rates(random: Random) -> Rates:
    """Some worlds have a bad network, some bad replicas, some all of it."""
    bus = random.choice((0.0, 0.01, 0.05))
    replicas = random.choice((0.0, 0.1, 0.3))
    return Rates(
        refused=bus,
        lost_answer=bus,
        late_landing=bus,
        lost_request=bus,
        lost_renewal=2 * bus,
        failed_start=replicas / 3,
        exit=replicas,
        duplicate_report=0.05,
        lost_sample=bus,
    )
