"""One bridge from its start to its stop, connection and health endpoint included."""

import asyncio

from services.routes.bridge.bridge import Bridge
from shared.runtime.process import work_on_bus
from shared.runtime.settings import Settings


async def run_bridge(settings: Settings, bridge: Bridge, name: str, stop: asyncio.Event) -> None:
    """Connect and run until `stop`. Waits for a server that is away."""

    def gauges() -> dict[str, float]:
        serves = bridge.report.serves
        return {
            "steer_route_version": serves.number if serves else 0,
            "steer_bridge_failing": int(bool(bridge.report.error)),
        }

    def problem() -> str:
        return bridge.report.error or ("" if bridge.report.serves is not None else "no version is applied yet")

    await work_on_bus(settings, name, stop, lambda bus: bridge.run(bus, stop), gauges, problem)
