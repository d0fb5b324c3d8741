"""A calm world, told step by step: what the histories are made of."""

from collections.abc import Callable

from shared.model.deployment import ActiveRelease
from shared.model.environment import Environment, Replicas
from shared.model.node import Capacity
from shared.model.route import InternalService
from shared.subjects import ACTIVE, ENVIRONMENT, ROUTE_INTERNAL, Key

from .faults import Rates
from .mix import PLAIN
from .surroundings import NO_FLAWS, Flaws
from .users import ENVIRONMENTS
from .wire import put
from .world import World, node

WEB = ENVIRONMENTS[0]


def environment(replicas: int, drain_window_seconds: float = 5) -> Environment:
    return Environment(replicas=Replicas(min=replicas, max=replicas + 2), drain_window_seconds=drain_window_seconds)


class Story:
    """A calm world of three nodes with one environment, told step by step."""

    def __init__(self, *, replicated: bool = False, flaws: Flaws = NO_FLAWS, cpu_millis: int = 2000) -> None:
        capacity = Capacity(cpu_millis=cpu_millis, memory_mb=4096)
        nodes = {f"node-{n}": node({"region": "north"}, capacity, n) for n in range(3)}
        self.world = World(
            11, rates=Rates(), nodes=nodes, replicated=replicated, flaws=flaws, window_seconds=1e6, mix=PLAIN
        )
        self.log = self.world.log
        self.view = self.world.safety.view
        self.world.start()

    def run(self, seconds: float) -> None:
        self.world.timeline.run(seconds)

    def put(self, replicas: int, key: Key = WEB, drain_window_seconds: float = 5) -> None:
        self.log.publish(put(ENVIRONMENT, key, environment(replicas, drain_window_seconds)))

    def deploy(self, key: Key = WEB) -> Key:
        return self.world.users.deploy(key, self.world.users.release(key, "exec:good"))

    def serving(self, replicas: int = 2) -> Key:
        """The environment is deployed and serves; the key of its request."""
        self.put(replicas)
        request = self.deploy()
        self.world.converge()
        assert self.healthy() == replicas
        return request

    def healthy(self, key: Key = WEB) -> int:
        active = self.view.get(ACTIVE, key, ActiveRelease)
        mine = self.view.replicas(key)
        return sum(
            self.view.healthy(name)
            for name, a in mine.items()
            if a.desired == "run" and active and a.deployment == active.deployment
        )

    def endpoints(self, key: Key = WEB) -> list[str]:
        record = self.view.get(ROUTE_INTERNAL, key, InternalService)
        return [] if record is None else [endpoint.assignment for port in record.ports for endpoint in port.endpoints]

    def stop_all(self, service: str) -> None:
        for instance in self.world.instances:
            if instance.service.name == service:
                instance.crash()

    def start_all(self) -> None:
        for instance in self.world.instances:
            instance.start()

    def until(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        assert self.world.timeline.run(seconds, condition), "the condition did not come to hold"
