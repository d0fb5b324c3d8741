"""`run_agent`: one agent from its start to its stop, connection and all."""

import asyncio
import contextlib
import fcntl
from collections.abc import Iterator

from services.agent.agent import Agent
from services.agent.config import AgentConfig
from services.agent.exec_driver import ExecDriver
from services.agent.metrics import Metrics
from shared.errors import ConfigurationError
from shared.runtime.bus import Bus
from shared.runtime.health import answering
from shared.runtime.process import connected
from shared.runtime.settings import Settings


async def run_agent(bus_or_settings: Bus | Settings, config: AgentConfig, stop: asyncio.Event) -> None:
    """An agent until `stop`. With settings it connects itself, and waits for a server that is away.

    Raises `ConfigurationError` where another agent uses the data directory, `Unavailable` when the connection is gone
    for good. Whatever ends it, replicas go on, unless it was stopped and told to stop them (`stop_replicas_on_exit`).
    """
    with _alone(config):
        agent = Agent(config, ExecDriver(config))
        agent.adopt()
        settings = bus_or_settings.settings if isinstance(bus_or_settings, Bus) else bus_or_settings
        try:
            metrics = Metrics(config.node, agent.states, lambda: agent.reports_waiting)
            async with answering(settings.metrics_port, metrics.text, lambda: agent.problem):
                if isinstance(bus_or_settings, Bus):
                    await agent.run(bus_or_settings, stop)
                else:
                    await _connect_and_run(agent, config, settings, stop)
        finally:
            await agent.leave()


async def _connect_and_run(agent: Agent, config: AgentConfig, settings: Settings, stop: asyncio.Event) -> None:
    async with connected(settings, f"agent-{config.node}", stop) as bus:
        if bus is not None:
            await agent.run(bus, stop)
        elif config.stop_replicas_on_exit:
            await agent.stop_replicas()


@contextlib.contextmanager
def _alone(config: AgentConfig) -> Iterator[None]:
    """Two agents on one data directory would run each other's replicas."""
    config.data_dir.mkdir(parents=True, exist_ok=True)
    with (config.data_dir / "agent.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(f"{config.data_dir}: another agent uses this directory") from None
        yield
