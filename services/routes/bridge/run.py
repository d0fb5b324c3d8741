"""One bridge from its start to its stop, connection and health endpoint included."""

import asyncio

from services.routes.bridge.bridge import Bridge
from shared.runtime.health import answering
from shared.runtime.process import connected
from shared.runtime.settings import Settings


async def run_bridge(settings: Settings, bridge: Bridge, name: str, stop: asyncio.Event) -> None:
    """Connect and run until `stop`. Waits for a server that is away."""
    async with (
        answering(settings.metrics_port, lambda: _metrics(bridge), lambda: _problem(bridge)),
        connected(settings, name, stop) as bus,
    ):
        if bus is not None:
            await bridge.run(bus, stop)


def _problem(bridge: Bridge) -> str:
    """Why it is not ready; empty when the proxy serves a version."""
    return bridge.report.error or ("" if bridge.report.serves is not None else "no version is applied yet")


def _metrics(bridge: Bridge) -> bytes:
    serves = bridge.report.serves
    figures = {
        "steer_route_version": serves.number if serves else 0,
        "steer_bridge_failing": int(bool(bridge.report.error)),
    }
    return "".join(f"# TYPE {name} gauge\n{name} {value}\n" for name, value in figures.items()).encode()
