"""Fixtures of the whole suite: a real server, fresh for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings as examples

from shared.runtime import bus as buses
from shared.runtime import streams
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.settings import Settings

# The same examples in every run: a test that fails, fails for everybody.
examples.register_profile("repeatable", derandomize=True, deadline=None)
examples.load_profile("repeatable")


@pytest.fixture(autouse=True)
def default_logs() -> Iterator[None]:
    """What a command does to the logs of its process ends with its test."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server on a free port, with a store of its own."""
    server = EmbeddedServer()
    server.start(tmp_path / "jetstream")
    yield server
    server.stop()


@pytest.fixture
def settings(server: EmbeddedServer) -> Settings:
    return Settings(nats_url=server.url)


@pytest.fixture
async def bus(settings: Settings) -> AsyncIterator[Bus]:
    """A connection to the server, its streams ensured."""
    bus = await buses.connect(settings, "test", patience=60)
    await streams.ensure(bus)
    yield bus
    await bus.close()
