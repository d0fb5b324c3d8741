"""Fixtures of the whole suite: a real server, fresh for each test; and the order in which workers share the tests."""

import gc
from collections.abc import AsyncIterator, Iterator
from itertools import islice
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

ORDER = ("end_to_end", "integration", "property", "simulation", "architecture", "unit", "wire")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whole programs wait most of their time: two of the workers begin with them, while the others compute. What is short
    comes last, so that nothing long is left at the end. Each worker is given one stretch of this list to begin with."""
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    if workers == 1:
        return
    here = Path(__file__).parent
    items.sort(key=lambda item: ORDER.index(item.path.relative_to(here).parts[0]))
    programs = [item for item in items if item.path.is_relative_to(here / "end_to_end")]
    rest, dealt = iter(items[len(programs) :]), list[pytest.Item]()
    for worker in range(workers):
        size = (len(items) - len(dealt)) // (workers - worker)
        begin = programs[worker::2] if worker < 2 else []
        dealt += [*begin, *islice(rest, max(0, size - len(begin)))]
    items[:] = [*dealt, *rest]


def pytest_collection_finish() -> None:
    """The tests themselves are no garbage: the collector looks only at what they make."""
    gc.collect()
    gc.freeze()


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
