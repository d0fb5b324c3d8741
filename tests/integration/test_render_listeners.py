"""The other listeners of the real proxies: HTTPS with a certificate by name, and the one for services and functions."""

import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from services.routes.render import Options
from shared.model.route import FunctionRoute, InternalPort, InternalService
from shared.runtime.embedded import free_port
from tests.integration.proxied import PROXIES, SHOP, replica, serving
from tests.table import Table, endpoints, route, table

OTHER = "other.example.com"


def certificate(directory: Path, hostname: str) -> ssl.SSLContext:
    """A certificate and its key in one file, and a client that trusts nothing else."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not there")
    directory.mkdir(exist_ok=True)
    key, own = directory / f"{hostname}.key", directory / f"{hostname}.pem"
    asked = ("-nodes", "-days", "2", "-subj", f"/CN={hostname}", "-addext", f"subjectAltName=DNS:{hostname}")
    new = (openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run((*new, *asked, "-keyout", str(key), "-out", str(own)), check=True, capture_output=True)
    trust = ssl.create_default_context(cafile=str(own))
    own.write_text(own.read_text() + key.read_text())
    key.unlink()
    return trust


@pytest.mark.parametrize("proxy", PROXIES)
async def test_a_client_gets_the_certificate_of_the_host_that_it_asks_for(proxy: str, tmp_path: Path) -> None:
    trusted = {host: certificate(tmp_path / "certificates", host) for host in (SHOP, OTHER)}
    port = free_port()
    options = Options(https=f"127.0.0.1:{port}", certificates=str(tmp_path / "certificates"))
    async with replica("shop") as shop, replica("other") as other:
        routes = table([route(SHOP, "", shop), route(OTHER, "", other)])
        async with serving(proxy, routes, tmp_path, options) as ask:
            plain = await ask.whole(SHOP, "/a?b=c")
            assert plain.status == 308 and plain.headers["Location"] == f"https://{SHOP}:{port}/a?b=c"
            secure = ask.on(port, "https")
            for host, name in ((SHOP, "shop"), (OTHER, "other")):
                answer = await secure.whole(host, ssl=trusted[host], server_hostname=host)
                assert answer.status == 200 and (await answer.text()).split()[0] == name
                assert answer.headers["X-Proto"] == "https"


def inside(first: str, second: str, function: str) -> Table:
    ports = (
        InternalPort(name="stats", port=8125, protocol="udp"),
        InternalPort(name="http", port=8080, protocol="tcp", endpoints=endpoints(first)),
        InternalPort(name="admin", port=9000, protocol="tcp", endpoints=endpoints(second)),
    )
    empty = (InternalPort(name="http", port=8080, protocol="tcp"),)
    services = {
        "shop/web/production": InternalService(
            fqdn="web.production.shop.internal.", environment="shop/web/production", ports=ports
        ),
        "shop/nap/production": InternalService(
            fqdn="nap.production.shop.internal.", environment="shop/nap/production", ports=empty
        ),
    }
    functions = {
        "shop/greet": FunctionRoute(namespace="shop", function="greet", pool="p", endpoints=endpoints(function))
    }
    return replace(table([route(SHOP, "", first)]), internal=services, functions=functions)


@pytest.mark.parametrize("proxy", PROXIES)
async def test_services_and_functions_are_reached_by_their_names_and_only_inside(proxy: str, tmp_path: Path) -> None:
    port = free_port()
    async with replica("web") as web, replica("admin") as admin, replica("worker") as worker:
        routes = inside(web, admin, worker)
        async with serving(proxy, routes, tmp_path, Options(internal=f"127.0.0.1:{port}")) as outside:
            ask = outside.on(port)
            wanted = {
                ("web.production.shop.internal", "/"): "web",
                ("web.production.shop.internal:8080", "/"): "web",
                ("http.web.production.shop.internal", "/"): "web",
                ("admin.web.production.shop.internal", "/x"): "admin",
                ("functions.shop.internal", "/function/greet"): "worker",
                ("functions.shop.internal", "/function/greet/more"): "worker",
            }
            assert {asked: (await ask(*asked))[1].split()[0] for asked in wanted} == wanted
            nobody = {
                ("nap.production.shop.internal", "/"): 503,
                ("stats.web.production.shop.internal", "/"): 404,
                ("functions.shop.internal", "/function/greeting"): 404,
                ("functions.other.internal", "/function/greet"): 404,
                (SHOP, "/"): 404,
            }
            assert {asked: (await ask(*asked))[0] for asked in nobody} == nobody
            assert {(await outside(host))[0] for host, _ in wanted} == {404}
