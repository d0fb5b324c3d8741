"""The sweeper against the real registry of the package `docker-registry`, and its command line."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.scheduler.registry import DIGEST, MANIFESTS, Registry
from services.scheduler.sweeper import Sweeper
from shared import subjects
from shared.errors import ConfigurationError
from shared.model.image_sweep import ImageSweep, ImageSwept
from shared.runtime import records, tasks
from shared.runtime.bus import Bus
from shared.runtime.embedded import free_port
from shared.runtime.settings import Settings
from shared.subjects import Key
from tests.integration.running import eventually

ROOT = Path(__file__).parents[2]
PROGRAM = shutil.which("docker-registry")
BUILD = "01arz3ndektsv4rrffq69g5fav"
KEY: Key = ("shop", "web", BUILD)
OCI = "application/vnd.oci.image.manifest.v1+json"

needs_registry = pytest.mark.skipif(PROGRAM is None, reason="the program docker-registry is not installed")


class Images:
    """What a builder does at a registry, and what is there."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def push(self, repository: str, tag: str, content: str = "") -> str:
        """Push an image whose content is this text; its digest."""
        config = await self._blob(repository, json.dumps({"content": content}).encode())
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
            "layers": [],
        }
        url = f"{self.url}/v2/{repository}/manifests/{tag}"
        async with self._session.put(url, data=json.dumps(manifest), headers={"Content-Type": OCI}) as response:
            assert response.status == 201, await response.text()
            return response.headers[DIGEST]

    async def _blob(self, repository: str, body: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        async with self._session.post(f"{self.url}/v2/{repository}/blobs/uploads/") as response:
            assert response.status == 202
            location = response.headers["Location"]
        async with self._session.put(location, params={"digest": digest}, data=body) as response:
            assert response.status == 201, await response.text()
        return {"digest": digest, "size": len(body)}

    async def has(self, repository: str, tag: str) -> bool:
        url = f"{self.url}/v2/{repository}/manifests/{tag}"
        async with self._session.head(url, headers={"Accept": MANIFESTS}) as response:
            return response.status == 200


@asynccontextmanager
async def registry(directory: Path, *, deletes: bool = True, port: int | None = None) -> AsyncIterator[Images]:
    """A registry of its own, empty."""
    assert PROGRAM is not None
    port = port or free_port()
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "blobs")}, "delete": {"enabled": deletes}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (directory / "registry.yml").write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(PROGRAM, "serve", str(directory / "registry.yml")),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as session:

            async def answers() -> bool:
                try:
                    async with session.get(f"{url}/v2/") as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    return False

            await eventually(answers)
            yield Images(url, session)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def sweeping(bus: Bus, url: str) -> AsyncIterator[None]:
    async with Registry(url, timeout_seconds=60) as client:
        task = asyncio.create_task(Sweeper(bus, client, backoff_seconds=(0.05, 0.2)).run())
        try:
            yield
        finally:
            await tasks.end(task)


@pytest.fixture
async def images(tmp_path: Path) -> AsyncIterator[Images]:
    async with registry(tmp_path) as images:
        yield images


async def order(bus: Bus, key: Key = KEY, keep: tuple[str, ...] = ()) -> None:
    sweep = ImageSweep(image="", release="shop/web/production/3", keep_digests=keep, ordered_at=datetime.now(UTC))
    await records.put(bus, subjects.IMAGE_SWEEP, key, sweep)


async def answer(bus: Bus, key: Key = KEY) -> ImageSwept | None:
    version = await records.get(bus, subjects.IMAGE_SWEPT, key)
    return version.record if version is not None and isinstance(version.record, ImageSwept) else None


async def done(bus: Bus, key: Key = KEY) -> None:
    async def look() -> bool:
        found = await answer(bus, key)
        return found is not None and found.state == "done"

    await eventually(look)


@needs_registry
async def test_an_image_is_deleted_and_the_answer_goes_with_the_order(bus: Bus, images: Images) -> None:
    await images.push("shop/web", BUILD, "old")
    await images.push("shop/web", "another", "new")
    async with sweeping(bus, images.url):
        await order(bus)
        await done(bus)
        assert not await images.has("shop/web", BUILD)
        assert await images.has("shop/web", "another")
        await records.put(bus, subjects.IMAGE_SWEEP, KEY, None)

        async def gone() -> bool:
            return await answer(bus) is None

        await eventually(gone)


@needs_registry
async def test_an_image_that_a_kept_release_runs_with_stays(bus: Bus, images: Images) -> None:
    digest = await images.push("shop/web", BUILD, "the same source")
    async with sweeping(bus, images.url):
        await order(bus, keep=(digest,))
        await done(bus)
    assert await images.has("shop/web", BUILD)


@needs_registry
async def test_what_is_not_there_has_been_swept(bus: Bus, images: Images) -> None:
    async with sweeping(bus, images.url):
        await order(bus)
        await done(bus)


@needs_registry
async def test_w18_an_image_is_found_whatever_the_case_of_the_builds_id(bus: Bus, images: Images) -> None:
    await images.push("shop/web", BUILD, "old")
    upper: Key = ("shop", "web", BUILD.upper())
    async with sweeping(bus, images.url):
        await order(bus, upper)
        await done(bus, upper)
    assert not await images.has("shop/web", BUILD)


@needs_registry
async def test_a_registry_that_is_away_is_tried_again(bus: Bus, tmp_path: Path) -> None:
    port = free_port()

    async def failed() -> bool:
        found = await answer(bus)
        return found is not None and found.state == "failed" and "/v2/shop/web/manifests/" in found.error

    async with sweeping(bus, f"http://127.0.0.1:{port}"):
        await order(bus)
        await eventually(failed)
        async with registry(tmp_path, port=port) as images:
            await images.push("shop/web", BUILD)
            await done(bus)


@needs_registry
async def test_a_registry_that_does_not_delete_is_named_and_the_same_reason_is_said_once(
    bus: Bus, tmp_path: Path
) -> None:
    async with registry(tmp_path, deletes=False) as images:
        digest = await images.push("shop/web", BUILD)
        async with sweeping(bus, images.url):
            await order(bus)

            async def refused() -> bool:
                found = await answer(bus)
                return found is not None and found.error == f"shop/web@{digest}: the registry does not allow deletion"

            await eventually(refused)
            await order(bus)  # asked again: as long as the reason is the same there is nothing to add
            await order(bus, ("shop", "web", "other"))
            await done(bus, ("shop", "web", "other"))
            assert len(await records.history(bus, subjects.IMAGE_SWEPT.subject(*KEY))) == 1


@needs_registry
async def test_a_sweeper_that_starts_later_finds_its_orders_and_forgets_old_answers(bus: Bus, images: Images) -> None:
    await images.push("shop/web", BUILD)
    await order(bus)
    old: Key = ("shop", "web", "old")
    await records.put(bus, subjects.IMAGE_SWEPT, old, ImageSwept(state="done", at=datetime.now(UTC)))
    async with sweeping(bus, images.url):
        await done(bus)

        async def gone() -> bool:
            return await answer(bus, old) is None

        await eventually(gone)
    assert not await images.has("shop/web", BUILD)


@needs_registry
async def test_the_process_sweeps_and_stops_cleanly(bus: Bus, settings: Settings, images: Images) -> None:
    await images.push("shop/web", BUILD)
    await order(bus)
    process = await start({"STEER_NATS_URL": settings.nats_url, "STEER_REGISTRY_URL": images.url})
    try:
        await done(bus)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_sweeper_without_a_registry_says_which_setting_is_missing() -> None:
    process = await start({})
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert "STEER_REGISTRY_URL is not set" in errors.decode()


@pytest.mark.parametrize("url", ["registry:5000", "ftp://registry", "http://"])
async def test_what_is_no_url_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="registry"):
        Registry(url)


async def start(variables: dict[str, str]) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEER_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.scheduler.sweeper"),
        cwd=ROOT,
        env=environment | variables,
        stderr=asyncio.subprocess.PIPE,
    )
