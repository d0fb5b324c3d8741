"""Simulated users of functions: they declare them, move them, grant, take away, and publish what cannot be read."""

from random import Random

from shared.model.function import Function, FunctionAccess, Pooling
from shared.model.pool import PoolingPolicy, Runtime
from shared.model.run import PortSpec, RunSpec
from shared.subjects import ACCESS, FUNCTION, POOLING_POLICY, RUNTIME

from .clock import Timeline
from .log import Log
from .wire import Message, put

NS = "shop"
LIMIT = 2
HOST = Runtime(run=RunSpec(image="host", command=("host",), ports=(PortSpec(name="http", container_port=80),)))


class FunctionUsers:
    """`every_seconds` is the mean time between two wishes; the functions are `f0` and so on, `count` of them."""

    def __init__(self, log: Log, timeline: Timeline, random: Random, every_seconds: float, count: int) -> None:
        self._log, self._timeline, self._random = log, timeline, random
        self._every_seconds = every_seconds
        self._names = [f"f{number}" for number in range(count)]
        self.busy = True

    def begin(self) -> None:
        self._log.publish(put(RUNTIME, ("python",), HOST))
        self._log.publish(put(POOLING_POLICY, (NS,), PoolingPolicy(limit=LIMIT)))
        self._step()

    def rest(self) -> None:
        self.busy = False

    def _step(self) -> None:
        if not self.busy:
            return
        name, random = self._random.choice(self._names), self._random
        match random.random():
            case chance if chance < 0.1:
                self._log.publish(Message(FUNCTION.subject(NS, name), b'{"runtime": 3}'))
            case chance if chance < 0.25:
                self._log.publish(put(FUNCTION, (NS, name), None))
            case chance if chance < 0.45:
                grants = tuple(random.sample(["group/x", "group/y"], random.randint(0, 1)))
                self._log.publish(put(ACCESS, (NS, name), FunctionAccess(grants=grants)))
            case _:
                pooling = Pooling(worker=random.choice(["main", "main", None]))
                artifact = f"v{random.randint(1, 3)}"
                function = Function(runtime="python", handler="m.h", artifact=artifact, pooling=pooling)
                self._log.publish(put(FUNCTION, (NS, name), function))
        self._timeline.after(random.expovariate(1 / self._every_seconds), self._step)
