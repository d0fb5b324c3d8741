"""The routes followed with the ordinary `nats` program, by the recipe of the README."""

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from shared import subjects
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.settings import Settings
from tests.routing import World

NATS = shutil.which("nats", path=f"{os.environ.get('PATH', '')}:{Path.home() / 'go' / 'bin'}")
RECIPE = ("sub", "--stream", subjects.STREAM, "--last-per-subject", subjects.ROUTE_SUBJECTS)

pytestmark = pytest.mark.skipif(NATS is None, reason="the nats program is not on the PATH")


async def test_the_recipe_shows_the_routes_in_force_and_then_each_change(bus: Bus, settings: Settings) -> None:
    world = World("")
    world.environment()
    world.node("n1")
    world.release("1")
    world.replica("web-1")
    world.promote("1")
    world.domain_of("main", "shop.example.com")
    world.publish()
    sent = await send(bus, world)
    assert NATS is not None
    child = await asyncio.create_subprocess_exec(
        *(NATS, "--server", settings.nats_url, *RECIPE), stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
    )
    try:
        await until(child, b'"address":"10.0.0.1:30001"')
        world.report("web-1", ports={"http": 30009})
        world.wait(1000)
        world.publish()
        await send(bus, world, sent)
        await until(child, b'"address":"10.0.0.1:30009"')
        await until(child, f'"version":{world.manifest.version}'.encode())
    finally:
        child.terminate()
        await asyncio.wait_for(child.communicate(), 60)


def test_the_recipe_is_that_of_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"nats {' '.join(RECIPE[:-1])} '{RECIPE[-1]}'" in readme


async def send(bus: Bus, world: World, since: int = 0) -> int:
    """Publish what was written since; how much there is now."""
    for version in world.versions[since:]:
        await records.put(bus, version.kind, version.key, version.record)
    return len(world.versions)


async def until(child: asyncio.subprocess.Process, text: bytes) -> None:
    """Read until a line has it."""
    assert child.stdout is not None
    async with asyncio.timeout(60):
        while line := await child.stdout.readline():
            if text in line:
                return
    raise AssertionError(f"it has ended without {text.decode()}")
