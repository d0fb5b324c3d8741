"""The composition root of a service's process: connect, run one instance, stop cleanly.

A clean stop (SIGTERM, SIGINT) ends the pass under way, gives the lease back, so that a standby takes over at once, and
exits with 0. A setting that cannot be used exits with 2; a connection that is gone for good, or a task beside the loop
that has ended, with 1: whatever supervises the process starts it anew.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from shared.runtime import logs
from shared.runtime.bus import Bus
from shared.runtime.instance import Alongside, Instance
from shared.runtime.process import connected, run, starting
from shared.runtime.settings import Settings
from shared.service import Service


async def serve(
    service: Service[Any],
    settings: Settings,
    *,
    stop: asyncio.Event,
    bus: Bus | None = None,
    alongside: Sequence[Alongside] = (),
) -> None:
    """Run one instance of a service until `stop` is set. Raises what `Instance.run` raises.

    A `bus` that is given stays open; else the instance has its own. Waits for a server that is away.
    """
    if bus is not None:
        await Instance(service, bus, stop, alongside).run()
        return
    async with connected(settings, service.name, stop) as own:
        if own is not None:
            await Instance(service, own, stop, alongside).run()


def main(factory: Callable[[Settings], Service[Any]], *, alongside: Sequence[Alongside] = ()) -> None:
    """For `__main__`: the environment, logs, signals and the event loop; exits the process."""
    with starting():
        settings = Settings.from_environment()
        service = factory(settings)
    logs.configure(settings, service=service.name)
    run(lambda stop: serve(service, settings, stop=stop, alongside=alongside))
