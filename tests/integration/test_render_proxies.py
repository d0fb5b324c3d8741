"""What is rendered, in the real Caddy and the real HAProxy: who gets which answer."""

import asyncio
import base64
from pathlib import Path

import pytest

from services.routes.render import FORMATS, Options
from shared.model.domain import BasicAuth, Middleware
from shared.model.environment import RateLimit
from shared.model.route import L4Route
from shared.runtime.embedded import free_port
from tests.end_to_end.edge import program
from tests.integration.proxied import PLAIN, PROXIES, SHOP, replica, serving
from tests.table import BCRYPT, endpoints, route, table


def only_from(network: str) -> Middleware:
    return Middleware(redirect_https=False, ip_allowlist=(network,))


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
            assert b"here /l4" in await asyncio.wait_for(reader.read(), 60)
            writer.close()


@pytest.mark.skipif(program("haproxy") is None, reason="haproxy is not installed")
async def test_haproxy_tries_its_servers_where_all_seem_to_be_down(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    async with replica("here") as here:
        routes = table([route(SHOP, "", here, middleware=PLAIN)])
        async with serving("haproxy", routes, tmp_path, Options(socket=str(socket))) as ask:
            (backend,) = FORMATS["haproxy"](routes, Options()).environments
            reader, writer = await asyncio.open_unix_connection(socket)
            command = f"set server {backend}/s0_web-0 health down; show servers state {backend}\n"
            writer.write(command.encode())
            states = [line.split()[3:6] for line in (await reader.read()).decode().splitlines() if " r" in line]
            writer.close()
            assert [state[0] for state in states] == ["s0_web-0", "b_s0_web-0"]
            assert [state[2] for state in states] == ["0", "2"], "the first is down"
            assert (await ask(SHOP))[0] == 200


@pytest.mark.parametrize("proxy", PROXIES)
async def test_an_endpoint_that_is_gone_costs_no_request(proxy: str, tmp_path: Path) -> None:
    async with replica("here") as here, replica("gone") as gone:
        pass
    async with replica("here") as here:
        routes = table([route(SHOP, "", gone, here, f"127.0.0.1:{free_port()}", middleware=PLAIN)])
        async with serving(proxy, routes, tmp_path, Options()) as ask:
            assert {(await ask(SHOP))[0] for _ in range(40)} == {200}
            assert (await ask(SHOP, method="POST", data=b"x"))[0] == 200
