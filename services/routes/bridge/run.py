"""One bridge from its start to its stop, connection and health endpoint included."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.routes.bridge.bridge import Bridge
from shared.errors import ConfigurationError
from shared.runtime import tasks
from shared.runtime.bus import connect
from shared.runtime.health import HealthServer
from shared.runtime.settings import Settings


async def run_bridge(settings: Settings, bridge: Bridge, name: str, stop: asyncio.Event) -> None:
    """Connect and run until `stop`. Waits for a server that is away."""
    async with _answering(bridge, settings):
        connecting, stopping = asyncio.create_task(connect(settings, name)), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([connecting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                return
            bus = connecting.result()
        finally:
            await tasks.end(connecting, stopping)
        try:
            await bridge.run(bus, stop)
        finally:
            await bus.close()


@asynccontextmanager
async def _answering(bridge: Bridge, settings: Settings) -> AsyncIterator[None]:
    """Healthy: the event loop runs. Ready: the proxy serves a version."""
    if settings.metrics_port is None:
        yield
        return
    server = HealthServer(lambda: _metrics(bridge), lambda: "", lambda: _problem(bridge))
    try:
        await server.start(settings.metrics_port)
    except OSError as error:
        raise ConfigurationError(f"STEER_METRICS_PORT={settings.metrics_port}: {error}") from error
    try:
        yield
    finally:
        await server.stop()


def _problem(bridge: Bridge) -> str:
    return bridge.report.error or ("" if bridge.report.serves is not None else "no version is applied yet")


def _metrics(bridge: Bridge) -> bytes:
    serves = bridge.report.serves
    figures = {
        "steer_route_version": serves.number if serves else 0,
        "steer_bridge_failing": int(bool(bridge.report.error)),
    }
    return "".join(f"# TYPE {name} gauge\n{name} {value}\n" for name, value in figures.items()).encode()
