"""The bridge's two proxies, real: what they take, what they refuse, what they say of their load; and `steer routes`."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from services.routes.bridge.__main__ import main
from services.routes.bridge.bridge import Proxy, Refused
from services.routes.bridge.caddy import Caddy
from services.routes.bridge.haproxy import HAProxy
from services.routes.render import FORMATS, Options, Rendered
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer, free_port
from tests.end_to_end.edge import answers, process, program, until
from tests.integration.steer_command import Steer
from tests.routing import World
from tests.table import route, table

SHOP = "shop.example.com"


def installed(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.skipif(program(name) is None, reason=f"{name} is not installed"))


@asynccontextmanager
async def running(kind: str, directory: Path) -> AsyncIterator[tuple[Proxy, Options]]:
    """A proxy without any routes, and how to render for it."""
    executable = program(kind)
    assert executable is not None
    config, socket, master = (directory / name for name in ("haproxy.cfg", "stats.sock", "master.sock"))
    options = Options(
        f"127.0.0.1:{free_port()}", admin=f"127.0.0.1:{free_port()}", socket=str(socket), mark="steer-0-none"
    )
    proxy: Proxy
    async with AsyncExitStack() as stack:
        if kind == "caddy":
            proxy = Caddy(options.admin)
            config.write_text(json.dumps({"admin": {"listen": options.admin}}))
            command: tuple[str, ...] = (executable, "run", "--config", str(config))
        else:
            proxy = HAProxy(config, socket, master, program=executable)
            config.write_text(FORMATS[kind](table([]), options).body)
            command = (executable, "-W", "-S", str(master), "-f", str(config))
        await stack.enter_async_context(process(directory / "proxy.log", *command))

        async def up() -> bool:
            try:
                await proxy.serves("steer-0-none")
            except Refused:
                return False
            return kind == "caddy" or master.exists()

        await until(up)
        yield proxy, options


@pytest.mark.parametrize("kind", [installed("caddy"), installed("haproxy")])
async def test_a_proxy_has_what_it_took_and_keeps_it_when_it_refuses_something(kind: str, tmp_path: Path) -> None:
    async with running(kind, tmp_path) as (proxy, options):
        port = int(options.http.rpartition(":")[2])
        for number in (1, 2):
            mark = f"steer-{number}-abc"
            rendered = FORMATS[kind](table([route(SHOP)]), replace(options, mark=mark))
            await proxy.apply(rendered, mark)
            assert await proxy.serves(mark) and not await proxy.serves("steer-9-abc")
            assert await answers(port, SHOP, 503)
        with pytest.raises(Refused, match=r"(?i)haproxy refuses|caddy answers 400"):
            await proxy.apply(Rendered(lambda: "nonsense\n"), "steer-3-abc")
        assert await proxy.serves("steer-2-abc") and await answers(port, SHOP, 503)
        counts = await proxy.counts()
        name = next(iter(FORMATS[kind](table([route(SHOP, "", "127.0.0.1:1")]), options).environments))
        assert counts[name].requests >= 1


@pytest.mark.skipif(program("haproxy") is None, reason="haproxy is not installed")
async def test_haproxy_is_reloaded_for_another_configuration_only(tmp_path: Path) -> None:
    async with running("haproxy", tmp_path) as (proxy, options):
        assert isinstance(proxy, HAProxy)
        pids = []
        for number, routes in enumerate(([], [], [route(SHOP)], [route(SHOP)]), 1):
            mark = f"steer-{number}-abc"
            await proxy.apply(FORMATS["haproxy"](table(routes), replace(options, mark=mark)), mark)
            assert await proxy.serves(mark) and not await proxy.serves(f"steer-{number - 2}-abc")
            reader, writer = await asyncio.open_unix_connection(tmp_path / "stats.sock")
            writer.write(b"show info\n")
            pids.append(next(line for line in (await reader.read()).splitlines() if line.startswith(b"Pid:")))
            writer.close()
        assert pids[0] == pids[1] != pids[2] == pids[3]

        another = HAProxy(proxy.config, proxy.socket, proxy.master, program=proxy.program)
        await another.apply(FORMATS["haproxy"](table([]), replace(options, mark="steer-9-abc")), "steer-9-abc")
        assert not await proxy.serves("steer-4-abc")
        await proxy.apply(FORMATS["haproxy"](table([route(SHOP)]), replace(options, mark="steer-4-abc")), "steer-4-abc")
        assert await proxy.serves("steer-4-abc")


@pytest.mark.parametrize("kind", [installed("caddy"), installed("haproxy")])
async def test_a_proxy_that_is_away_is_named(kind: str, tmp_path: Path) -> None:
    async with running(kind, tmp_path) as (proxy, options):
        pass
    with pytest.raises(Refused, match=r"(?i)does not answer"):
        await proxy.serves("steer-0-none")
    with pytest.raises(Refused, match=r"(?i)does not answer"):
        await proxy.apply(FORMATS[kind](table([]), options), "steer-1-abc")


@pytest.mark.parametrize(
    ("kind", "sign"), [("caddy", '"dial":"10.0.0.1:30001"'), ("haproxy", "server s0_web-1 10.0.0.1:30001")]
)
async def test_steer_routes_renders_what_is_in_force(
    kind: str, sign: str, server: EmbeddedServer, bus: Bus, tmp_path: Path
) -> None:
    world = World("")
    world.environment()
    world.node("n1")
    world.release("1")
    world.replica("web-1")
    world.promote("1")
    world.domain_of("main", SHOP)
    world.publish()
    for version in world.versions:
        await records.put(bus, version.kind, version.key, version.record)
    steer = Steer(server.url, tmp_path)
    rendered = await steer("routes", "render", "--format", kind, "--http", "127.0.0.1:8080")
    assert (rendered.code, rendered.err) == (0, "") and sign in rendered.out
    told = (await steer("routes", "render", "--format", kind, "--http", "127.0.0.1:8080", "-o", "json")).json
    assert (told["format"], told["configuration"]) == (kind, rendered.out)
    assert (told["digest"], told["left_out"]) == (world.manifest.digest, [])
    listed = await steer("routes", "list")
    assert listed.code == 0 and SHOP in listed.out and "shop/web/production" in listed.out
    as_json = await steer("routes", "list", "-o", "json")
    assert as_json.json["digest"] == world.manifest.digest
    refused = await steer("routes", "render", "--format", "haproxy", "--https", ":443")
    assert refused.code == 2 and "--certificates" in refused.err


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (("haproxy", "--config", "/x"), "HAProxy needs --config, --socket, and --master or --pid-file"),
        (("haproxy", "--https", ":443"), "--https needs --certificates with HAProxy"),
        (("haproxy", "--http", "fd/3"), "--http 'fd/3': not host:port"),
        (("caddy", "--admin", "unix//run/../x}"), "--admin 'unix//run/../x}': not host:port"),
        (("caddy", "--slots", "run/slots"), "--slots 'run/slots': not an absolute path"),
        (("caddy", "--slots", "/run/{env.HOME}"), "--slots '/run/{env.HOME}': not an absolute path"),
        (("caddy", "--internal", "inside"), "--internal 'inside': not host:port"),
    ],
)
def test_a_bridge_that_is_told_nonsense_says_what(told: tuple[str, ...], said: str) -> None:
    command = typer.Typer()
    command.command()(main)
    ended = CliRunner().invoke(command, ["--name", "edge-1", "--proxy", *told])
    assert ended.exit_code == 2 and said in ended.stderr
