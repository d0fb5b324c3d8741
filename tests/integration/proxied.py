"""A rendered configuration in the real proxy, replicas behind it, and somebody who asks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from services.routes.render import FORMATS, Options
from shared.model.domain import Middleware
from shared.runtime.embedded import free_port
from tests.end_to_end.edge import process, program, until
from tests.table import Table

SHOP = "shop.example.com"
PLAIN = Middleware(redirect_https=False)


def installed(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.skipif(program(name) is None, reason=f"{name} is not installed"))


PROXIES = [installed("caddy"), installed("haproxy")]


@asynccontextmanager
async def replica(text: str) -> AsyncIterator[str]:
    """Its address. Answers with its name and what it was asked for."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await request.content.read()
        forwarded = request.headers.get("X-Forwarded-For", "")
        return web.Response(
            text=f"{text} {request.raw_path} {forwarded}", headers={"X-Proto": request.headers["X-Forwarded-Proto"]}
        )

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Asking:
    def __init__(self, session: aiohttp.ClientSession, port: int, scheme: str = "http") -> None:
        self._session = session
        self._port = port
        self._scheme = scheme

    def on(self, port: int, scheme: str = "http") -> "Asking":
        """The same on another listener."""
        return Asking(self._session, port, scheme)

    async def __call__(self, host: str, path: str = "/", **options: Any) -> tuple[int, str]:
        answer = await self.whole(host, path, **options)
        return answer.status, await answer.text()

    async def whole(self, host: str, path: str = "/", **options: Any) -> aiohttp.ClientResponse:
        headers = {"Host": host, **options.pop("headers", {})}

        url = URL(f"{self._scheme}://127.0.0.1:{self._port}{path}", encoded=True)
        method = options.pop("method", "GET")
        answer = await self._session.request(method, url, headers=headers, allow_redirects=False, **options)
        await answer.read()
        return answer


@asynccontextmanager
async def serving(proxy: str, routes: Table, directory: Path, options: Options) -> AsyncIterator[Asking]:
    port, admin = free_port(), free_port()
    options = replace(options, http=f"127.0.0.1:{port}", admin=f"127.0.0.1:{admin}", l4_host="127.0.0.1")
    file = directory / "configuration"
    file.write_text(FORMATS[proxy](routes, options).body)
    executable = program(proxy)
    assert executable is not None
    arguments = {"caddy": ("run", "--config"), "haproxy": ("-db", "-f")}[proxy]
    async with process(directory / "proxy.log", executable, *arguments, str(file)), aiohttp.ClientSession() as session:
        ask = Asking(session, port)

        async def up() -> bool:
            try:
                return (await ask("nobody.example.org"))[0] == 404
            except aiohttp.ClientError:
                return False

        await until(up)
        yield ask
