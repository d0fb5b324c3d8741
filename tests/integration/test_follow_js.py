"""The follower in JavaScript, run: it agrees with the one in Python, version by version."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import pytest

from services.routes.service import service
from shared import codec, subjects
from shared.model.live import ProxySample
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from tests.routing import World

EXAMPLE = Path(__file__).parents[2] / "examples" / "follow-js"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not on the PATH"),
    pytest.mark.skipif(not (EXAMPLE / "node_modules").is_dir(), reason="npm install was not run in examples/follow-js"),
]


async def test_the_follower_in_javascript_sees_and_acknowledges_each_version(bus: Bus, settings: Settings) -> None:
    stop, world = asyncio.Event(), World("")
    running = asyncio.create_task(serve(service(""), settings, stop=stop))
    world.environment()
    world.node("n1")
    world.release("1")
    world.replica("web-1")
    world.promote("1")
    world.domain_of("main", "shop.example.com")
    world.domain_of("old", "old.example.com")
    await send(bus, world)
    acknowledged = await bus.nc.subscribe(subjects.live_proxy("edge-js"))
    assert NODE is not None
    child = await asyncio.create_subprocess_exec(
        *(NODE, "follow.js", "edge-js"),
        cwd=EXAMPLE,
        env=os.environ | {"STEER_NATS_URL": settings.nats_url},
        stdin=DEVNULL,
        stdout=PIPE,
    )
    try:
        assert await seen(child, {"shop.example.com": ["10.0.0.1:30001"], "old.example.com": ["10.0.0.1:30001"]})
        world.report("web-1", ports={"http": 30009})
        world.delete(subjects.DOMAIN, "shop", "old")
        await send(bus, world)
        version = await seen(child, {"shop.example.com": ["10.0.0.1:30009"]})
        manifest = await records.get(bus, subjects.ROUTE_MANIFEST, ())
        assert manifest is not None and manifest.record is not None
        assert version["digest"] == manifest.record.model_dump()["digest"]
        async with asyncio.timeout(60):
            async for message in acknowledged.messages:
                sample = codec.validate(ProxySample, message.subject, message.data)
                if (sample.version, sample.digest) == (version["version"], version["digest"]):
                    break
    finally:
        child.terminate()
        await asyncio.wait_for(child.wait(), 60)
        stop.set()
        await asyncio.wait_for(running, 60)


async def send(bus: Bus, world: World) -> None:
    for version in world.versions:
        await records.put(bus, version.kind, version.key, version.record)
    world.versions.clear()


async def seen(child: asyncio.subprocess.Process, hosts: dict[str, list[str]]) -> dict[str, Any]:
    """The first version with these hosts and addresses."""
    assert child.stdout is not None
    async with asyncio.timeout(60):
        while True:
            line = await child.stdout.readline()
            assert line, "the follower has ended"
            version: dict[str, Any] = json.loads(line)
            if version["hosts"] == hosts:
                return version
