"""The interpreter of a service on NATS: follow, fold, lead, decide, commit, settle, wait."""

import asyncio
from collections.abc import Callable
from typing import Any

from shared.runtime.bus import Bus
from shared.runtime.settings import Settings
from shared.service import Service


async def serve(service: Service[Any], settings: Settings, *, stop: asyncio.Event, bus: Bus | None = None) -> None:
    """Run one instance of a service until `stop` is set."""
    raise NotImplementedError


def main(factory: Callable[[Settings], Service[Any]]) -> None:
    """For `__main__`: the environment, logs, signals and the event loop."""
    raise NotImplementedError
