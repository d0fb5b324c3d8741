"""What is rendered, in the real Caddy and the real HAProxy: who gets which answer."""

import asyncio
import base64
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
from shared.model.domain import BasicAuth, Middleware
from shared.model.environment import RateLimit
from shared.model.route import L4Route
from shared.runtime.embedded import free_port
from tests.end_to_end.edge import process, program, until
from tests.table import BCRYPT, Table, endpoints, route, table

SHOP = "shop.example.com"
PLAIN = Middleware(redirect_https=False)


def installed(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.skipif(program(name) is None, reason=f"{name} is not installed"))


PROXIES = [installed("caddy"), installed("haproxy")]


def only_from(network: str) -> Middleware:
    return Middleware(redirect_https=False, ip_allowlist=(network,))


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
    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._port = port

    async def __call__(self, host: str, path: str = "/", **options: Any) -> tuple[int, str]:
        answer = await self.whole(host, path, **options)
        return answer.status, await answer.text()

    async def whole(self, host: str, path: str = "/", **options: Any) -> aiohttp.ClientResponse:
        headers = {"Host": host, **options.pop("headers", {})}

        url = URL(f"http://127.0.0.1:{self._port}{path}", encoded=True)
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


@pytest.mark.parametrize("proxy", PROXIES)
async def test_each_request_finds_its_route(proxy: str, tmp_path: Path) -> None:
    async with replica("whole") as whole, replica("part") as part, replica("deep") as deep, replica("wild") as wild:
        routes = table(
            [
                route(SHOP, "", whole, middleware=PLAIN),
                route(SHOP, "/a.b", part, middleware=PLAIN),
                route(SHOP, "/a.b/c%20d", deep, middleware=PLAIN),
                route("*.example.com", "", wild, middleware=PLAIN),
                route("part.example.com", "/only", part, middleware=PLAIN),
                route("none.example.com", middleware=PLAIN),
                route("cold.example.com", cold=True, middleware=PLAIN),
            ]
        )
        async with serving(proxy, routes, tmp_path, Options(activators=(wild,))) as ask:
            wanted = {
                (SHOP, "/"): "whole",
                (SHOP, "/a.b"): "part",
                (SHOP, "/a.b/x?y=1"): "part",
                (SHOP, "/a.bc"): "whole",
                (SHOP, "/aXb"): "whole",
                (SHOP, "/A.b"): "whole",
                (SHOP, "/%61.b/x"): "part",
                (SHOP, "//a.b/x"): "part",
                (SHOP, "/a.b/c%20d/e"): "deep",
                (f"{SHOP.upper()}:8080", "/"): "whole",
                ("other.example.com", "/a.b"): "wild",
                ("part.example.com", "/only/x"): "part",
                ("part.example.com", "/else"): "wild",
                ("cold.example.com", "/"): "wild",
            }
            found = {asked: (await ask(*asked)) for asked in wanted}
            assert {asked: text.split()[0] for asked, (_, text) in found.items()} == wanted
            assert all(text.split()[1] == path for (_, path), (_, text) in found.items()), (
                "the path is passed on as it is"
            )
            assert (await ask("none.example.com"))[0] == 503
            assert (await ask("a.b.example.com"))[0] == 404
            assert (await ask("example.com"))[0] == 404
            climbing = await ask(SHOP, "/x/../a.b")
            assert climbing[0] == 400 or climbing[1].startswith("part")


@pytest.mark.parametrize("proxy", PROXIES)
async def test_middleware_does_what_it_says(proxy: str, tmp_path: Path) -> None:
    auth = BasicAuth(username="{env.HOME} 'me'", password_hash=BCRYPT)
    async with replica("here") as here:
        routes = table(
            [
                route(
                    "far.example.com",
                    "",
                    here,
                    middleware=only_from("10.9.0.0/16"),
                ),
                route(
                    "near.example.com",
                    "",
                    here,
                    middleware=only_from("127.0.0.1"),
                ),
                route("auth.example.com", "", here, middleware=Middleware(redirect_https=False, basic_auth=auth)),
                route("size.example.com", "", here, middleware=Middleware(redirect_https=False, max_body_bytes=10)),
                route("zip.example.com", "", here, middleware=Middleware(redirect_https=False, compress=True)),
                route("stick.example.com", "", here, middleware=Middleware(redirect_https=False, sticky_sessions=True)),
                route("plain.example.com", "", here, middleware=PLAIN),
            ]
        )
        async with serving(proxy, routes, tmp_path, Options()) as ask:
            assert (await ask("far.example.com"))[0] == 403
            assert (await ask("near.example.com"))[0] == 200
            assert (await ask("auth.example.com"))[0] == 401
            for password, status in (("a", 200), ("b", 401)):
                credentials = base64.b64encode(f"{auth.username}:{password}".encode()).decode()
                headers = {"Authorization": f"Basic {credentials}"}
                assert (await ask("auth.example.com", headers=headers))[0] == status
            assert (await ask("size.example.com", method="POST", data=b"x" * 10))[0] == 200
            assert (await ask("size.example.com", method="POST", data=b"x" * 11))[0] in {413, 502}
            assert "steer_sticky" in (await ask.whole("stick.example.com")).cookies
            answer = await ask.whole("plain.example.com", headers={"X-Forwarded-For": "6.6.6.6"})
            assert (await answer.text()).split()[2:] == ["127.0.0.1"] and answer.headers["X-Proto"] == "http"
            zipped = await ask.whole("zip.example.com", "/" + "a" * 2000, headers={"Accept-Encoding": "gzip"})
            assert zipped.headers.get("Content-Encoding") == "gzip"


@pytest.mark.skipif(program("haproxy") is None, reason="haproxy is not installed")
async def test_haproxy_limits_rates_and_forwards_public_ports(tmp_path: Path) -> None:
    async with replica("here") as here:
        number = free_port()
        port = L4Route(public_port=number, protocol="tcp", environment="a/b/c", endpoints=endpoints(here))
        limit = RateLimit(requests_per_second=0.1, burst=3)
        routes = table([route(SHOP, "", here, middleware=PLAIN, rate_limit=limit)], port)
        async with serving("haproxy", routes, tmp_path, Options()) as ask:
            answers = [await ask.whole(SHOP) for _ in range(5)]
            assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
            assert answers[-1].headers["Retry-After"] == "1"
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(b"GET /l4 HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: none\r\nConnection: close\r\n\r\n")
            assert b"here /l4" in await asyncio.wait_for(reader.read(), 10)
            writer.close()


@pytest.mark.parametrize("proxy", PROXIES)
async def test_an_endpoint_that_is_gone_costs_no_request(proxy: str, tmp_path: Path) -> None:
    async with replica("here") as here, replica("gone") as gone:
        pass
    async with replica("here") as here:
        routes = table([route(SHOP, "", gone, here, f"127.0.0.1:{free_port()}", middleware=PLAIN)])
        async with serving(proxy, routes, tmp_path, Options()) as ask:
            assert {(await ask(SHOP))[0] for _ in range(40)} == {200}
            assert (await ask(SHOP, method="POST", data=b"x"))[0] == 200
