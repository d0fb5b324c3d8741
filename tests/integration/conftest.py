"""Fixtures of the tests of the runtime: instances of the toy service on one server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from shared.runtime import bus as buses
from shared.runtime.instance import Instance
from shared.runtime.settings import Settings
from shared.service import Service
from tests.integration import toy
from tests.integration.running import Running, Start


@pytest.fixture
async def start(settings: Settings) -> AsyncIterator[Start]:
    """Start instances of the toy, with these settings; all of them end with the test."""
    running: list[Running] = []

    async def start(service: Service[Any] | None = None, **changes: Any) -> Running:
        name = f"toy{len(running)}"
        bus = await buses.connect(replace(settings, **changes), name)
        instance = Instance(service or toy.service(), bus, asyncio.Event())
        running.append(Running(instance, asyncio.create_task(instance.run(), name=name), bus))
        return running[-1]

    yield start
    for each in running:
        if not each.task.done():
            with contextlib.suppress(Exception):
                await asyncio.wait_for(each.stop(), 60)
