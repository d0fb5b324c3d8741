"""A whole world from one seed: services, agents, proxies, users and troubles on one log; then quiet, then order."""

from collections.abc import Callable
from random import Random
from typing import Any

from services.routes.service import service as routes
from services.scheduler.service import service as scheduler
from shared.model.node import Capacity, Node
from shared.service import Sample, Service
from shared.subjects import ASSIGNMENT

from .agents import Agent
from .bus import Bus
from .clock import Timeline
from .convergence import Convergence
from .faults import Rates
from .interpreter import Instance, Surroundings
from .invariants import TermsNeverGoBack, Violation
from .lease import Leases
from .log import Log
from .proxies import Proxy
from .safety import SchedulerIsSafe
from .trouble import Trouble
from .users import Users

Makers = tuple[Callable[[], Service[Any]], ...]

FAULTY_SECONDS = 150.0
QUIET_SECONDS = 3600.0
"""The longest deadline is ten minutes, and a replica that kept failing is held back for five."""
LOOK_SECONDS = 2.0


def _routes() -> Service[Any]:
    return routes("apps.test")


SERVICES: Makers = (scheduler, _routes)


class World:
    """`run` raises `Violation` for what must never happen, and for what should have happened by the end."""

    def __init__(self, seed: int, *, services: Makers = SERVICES, faulty_seconds: float = FAULTY_SECONDS) -> None:
        self.random = random = Random(seed)
        self._faulty_seconds = faulty_seconds
        self.timeline = timeline = Timeline()
        self.log = log = Log(lambda: timeline.now)
        self.rates = rates = _rates(random)
        bus = Bus(log, timeline, random, rates, replicated=random.random() < 0.5)
        around = Surroundings(timeline, random, log, bus, Leases(timeline, 3))
        self.instances: list[Instance[Any]] = [
            Instance(service, f"{service.name}-{number}", around)
            for make in services
            for number, service in enumerate((make(), make()))
        ]
        names = [f"node-{number}" for number in range(random.randint(3, 6))]
        self.agents = [Agent(name, _node(random, name), around, rates, self._telemetry) for name in names]
        self.proxies = [Proxy(f"edge-{number}", around, rates, self._telemetry) for number in range(2)]
        self.users = Users(log, timeline, random, names)
        self.trouble = Trouble(timeline, random, self.instances, self.agents, self.proxies, self.users)
        self.safety = SchedulerIsSafe(log, self.proxies, lambda: timeline.seconds)
        self.convergence = Convergence(log, self.safety.view, self.instances, self.agents, self.proxies)
        log.watch(TermsNeverGoBack(log))
        log.watch(self.safety)
        self._deliver_assignments()

    def run(self) -> None:
        for process in (*self.agents, *self.instances, *self.proxies):
            process.start()
        self.users.begin()
        self.trouble.begin()
        self.timeline.run(self._faulty_seconds)
        self.rates.calm()
        self.users.rest()
        self.trouble.end()
        self.converge()

    def converge(self) -> None:
        unmet = "nothing was looked at"
        end = self.timeline.seconds + QUIET_SECONDS
        while self.timeline.seconds < end:
            self.timeline.run(LOOK_SECONDS)
            unmet = self.convergence.unmet()
            if not unmet:
                return
        raise Violation("liveness", unmet)

    def _telemetry(self, sample: Sample) -> None:
        for instance in self.instances:
            if instance.up and sample.source in instance.service.observes:
                instance.later(self.random.uniform(0.001, 0.05), _observing(instance, sample))

    def _deliver_assignments(self) -> None:
        agents = {agent.name: agent for agent in self.agents}

        def deliver(stored: Any) -> None:
            for message in stored:
                if message.kind is ASSIGNMENT and message.key[0] in agents:
                    agents[message.key[0]].notify(message)

        self.log.watch(deliver)


def _observing(instance: Instance[Any], sample: Sample) -> Callable[[], None]:
    return lambda: instance.observe(sample)


def _node(random: Random, name: str) -> Node:
    labels = {"region": random.choice(("north", "south"))} | ({"disk": "ssd"} if random.random() < 0.5 else {})
    capacity = Capacity(cpu_millis=random.choice((600, 1000)), memory_mb=random.choice((1024, 1536)))
    return Node(labels=labels, platform="linux/amd64", capacity=capacity, address=f"10.0.0.{name[5:]}")


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
