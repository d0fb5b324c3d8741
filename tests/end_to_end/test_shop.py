"""The example application: what it answers, and that it ends without dropping a request."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

SHOP = Path(__file__).parents[2] / "examples" / "shop"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: shop.example.com\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        return int(head.split()[1]), body
    finally:
        writer.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 (another process: nothing to await)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def running(release: str, service: str) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        f"{service}.py",
        cwd=SHOP / release,
        env=os.environ | {"PORT": str(port)},
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def healthy() -> bool:
        try:
            return await get(port, "/healthz") == (200, "ok\n")
        except OSError:
            return False

    try:
        await until(healthy)
        yield port, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("release", "service", "path", "text"),
    [
        ("v1", "catalog", "/products", '"cheese"'),
        ("v2", "catalog", "/products", '"prices_in_cents"'),
        ("v2", "catalog", "/products/bread", '"price_in_cents": 320'),
        ("v1", "web", "/", "First edition"),
        ("v2", "web", "/", "now with prices"),
    ],
)
async def test_a_release_of_the_shop_answers_in_its_own_way(release: str, service: str, path: str, text: str) -> None:
    async with running(release, service) as (port, _):
        status, body = await get(port, path)
        assert status == 200 and text in body
        assert (await get(port, "/elsewhere"))[0] == 404


async def test_a_request_under_way_is_answered_before_the_process_ends() -> None:
    async with running("v1", "web") as (port, process):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        assert (await get(port, "/"))[0] == 200  # so the first request has been accepted
        process.send_signal(signal.SIGTERM)
        writer.write(b"\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 200")
        writer.close()
        assert await asyncio.wait_for(process.wait(), 60) == 0


def test_both_releases_serve_by_the_same_means() -> None:
    assert (SHOP / "v1" / "serving.py").read_text() == (SHOP / "v2" / "serving.py").read_text()
