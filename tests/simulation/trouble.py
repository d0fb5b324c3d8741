"""The troubles of a world: each happens to somebody, lasts a while, and is over."""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from shared.model.assignment import Assignment
from shared.subjects import ASSIGNMENT, INSTANCE, NODE_STATUS

from .agents import Agent
from .build_workers import Workers
from .clock import Timeline
from .follower import QUICK, SLOW
from .interpreter import Instance
from .log import Log
from .proxies import Proxy
from .users import Users
from .wire import Message


class Trouble:
    def __init__(
        self,
        log: Log,
        timeline: Timeline,
        random: Random,
        instances: list[Instance[Any]],
        agents: list[Agent],
        proxies: list[Proxy],
        users: Users,
        workers: Workers | None = None,
    ) -> None:
        self._log = log
        self._timeline = timeline
        self._random = random
        self._instances = instances
        self._agents = agents
        self._proxies = proxies
        self._users = users
        self._workers = workers
        self._declared_lost: set[str] = set()
        self.active = True

    def begin(self) -> None:
        self._timeline.after(self._random.uniform(1, 8), self._next)

    def end(self) -> None:
        """All is well again: everything runs; but a proxy may refuse new versions for ever."""
        self.active = False
        for instance in self._instances:
            instance.follower.delay_seconds = QUICK
            instance.resume()
            instance.start()
        for agent in self._agents:
            agent.cut_off = False
            self._power_on(agent)
        if self._workers is not None:
            self._workers.all_well()
        for proxy in self._proxies:
            proxy.start()
            proxy.refuse(False)
        if for_good := self._random.choice((None, None, None, self._proxies[-1])):
            for_good.refuse(True)  # what waits for it ends at its deadline

    def _next(self) -> None:
        if not self.active:
            return
        wait = self._random.choice((self._random.uniform(0.3, 8), self._random.uniform(8, 70)))
        self._random.choice(
            (
                self._crash_instance,
                self._crash_instance,
                self._pause_instance,
                self._pause_instance,
                self._stop_instance,
                self._slow_instance,
                self._crash_agent,
                self._cut_off_agent,
                self._lose_machine,
                self._jump_clock,
                self._garble,
                self._crash_proxy,
                self._refuse,
                *((self._crash_worker, self._cut_off_worker) if self._workers is not None else ()),
            )
        )(wait)
        self._timeline.after(self._random.uniform(1, 12), self._next)

    def _over(self, wait: float, action: Callable[[], None]) -> None:
        self._timeline.after(wait, action)

    def _crash_instance(self, wait: float) -> None:
        instance = self._random.choice(self._instances)
        instance.crash()
        self._over(wait / 4, instance.start)

    def _pause_instance(self, wait: float) -> None:
        instance = self._random.choice(self._instances)
        instance.pause()
        self._over(wait, instance.resume)

    def _stop_instance(self, wait: float) -> None:
        instance = self._random.choice(self._instances)
        instance.stop()
        self._over(wait / 4, instance.start)

    def _slow_instance(self, wait: float) -> None:
        follower = self._random.choice(self._instances).follower
        follower.delay_seconds = SLOW

        def quick() -> None:
            follower.delay_seconds = QUICK

        self._over(wait, quick)

    def _crash_agent(self, wait: float) -> None:
        agent = self._random.choice(self._agents)
        if agent.machine_up:
            agent.crash()
            self._over(wait / 2, lambda: agent.start() if agent.machine_up else None)

    def _cut_off_agent(self, wait: float) -> None:
        agent = self._random.choice(self._agents)
        agent.cut_off = True

        def back() -> None:
            agent.cut_off = False

        self._over(wait, back)

    def _lose_machine(self, wait: float) -> None:
        agent = self._random.choice(self._agents)
        agent.lose_machine()
        fate = self._random.random()
        if fate < 0.2:
            self._over(wait / 2, lambda: self._decommission(agent))
        elif fate < 0.5 and len(self._agents) > 1:
            self._over(wait / 2, lambda: self._declare_lost(agent))
        self._over(wait, lambda: self._power_on(agent))

    def _declare_lost(self, agent: Agent) -> None:
        if not agent.machine_up:
            self._declared_lost.add(agent.name)
            self._users.declare_lost(agent.name)

    def _power_on(self, agent: Agent) -> None:
        """A machine that was declared lost stays off as long as the log says that a volume is used there."""
        if agent.name in self._declared_lost:
            if self._may_use_a_volume(agent):
                self._over(2, lambda: self._power_on(agent))
                return
            self._declared_lost.discard(agent.name)
            self._users.withdraw_lost(agent.name)
        agent.start()

    def _may_use_a_volume(self, agent: Agent) -> bool:
        return any(
            key[0] == agent.name and isinstance(record, Assignment) and record.run.volumes and record.desired == "run"
            for key, record in self._log.current(ASSIGNMENT).items()
        )

    def _decommission(self, agent: Agent) -> None:
        if not agent.machine_up:
            self._users.delete_node(agent.name)

    def _jump_clock(self, wait: float) -> None:
        """That of a node, anywhere; or that of the log's server, ahead."""
        if self._random.random() < 0.2:
            self._timeline.jump_server(self._random.uniform(0, 40))
            return
        agent = self._random.choice(self._agents)
        agent.clock_offset += timedelta(seconds=self._random.uniform(-60, 60))

    def _garble(self, wait: float) -> None:
        """A record of a machine that nobody can read lies over a good one, until the machine has something to say.

        Of an assignment that is to stop it has not, before the replica is gone.
        """
        kind = self._random.choice((INSTANCE, INSTANCE, ASSIGNMENT, NODE_STATUS))
        current = self._log.current(kind)
        if keys := sorted(key for key in current if getattr(current[key], "desired", "") != "stop"):
            self._log.publish(Message(kind.subject(*self._random.choice(keys)), b'{"state": 3}'))

    def _crash_proxy(self, wait: float) -> None:
        proxy = self._random.choice(self._proxies)
        proxy.crash()
        self._over(wait, proxy.start)

    def _refuse(self, wait: float) -> None:
        proxy = self._random.choice(self._proxies)
        proxy.refuse(True)
        self._over(wait, lambda: proxy.refuse(False))

    def _crash_worker(self, wait: float) -> None:
        assert self._workers is not None
        workers = self._workers
        if worker := self._random.choice([*workers.workers.values()] or [None]):
            worker.crash()
            self._over(wait, lambda: workers.restart(worker))

    def _cut_off_worker(self, wait: float) -> None:
        assert self._workers is not None
        if worker := self._random.choice([*self._workers.workers.values()] or [None]):
            worker.cut_off = True
            self._over(wait, worker.back)
