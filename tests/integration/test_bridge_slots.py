"""The real Caddy with slots: endpoints change without a configuration, and nothing that waits is cut off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from services.routes.bridge.bridge import Refused
from services.routes.bridge.caddy import Caddy
from services.routes.render import FORMATS, Options, Rendered
from services.routes.render.caddy import STICKY_COOKIE
from shared.runtime.embedded import free_port
from tests.end_to_end.edge import answers, process, program, until
from tests.integration.proxied import PLAIN, SHOP, Asking, replica
from tests.table import route, table

pytestmark = pytest.mark.skipif(program("caddy") is None, reason="caddy is not installed")


class Edge:
    """A Caddy that listens for its administrator on a socket, with slots."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.directory = directory
        self.admin = f"unix/{directory / 'admin.sock'}"
        self.proxy = Caddy(self.admin, directory / "slots")
        self.configurations: set[str] = set()

    async def apply(self, mark: str, *addresses: str, **fields: object) -> None:
        rendered = self.rendered(mark, *addresses, **fields)
        self.configurations.add(rendered.mark)
        await self.proxy.apply(rendered, mark)

    def rendered(self, mark: str, *addresses: str, **fields: object) -> Rendered:
        options = Options(f"127.0.0.1:{self.port}", admin=self.admin, slots=str(self.directory / "slots"), mark=mark)
        return FORMATS["caddy"](table([route(SHOP, "", *addresses, **{"middleware": PLAIN, **fields})]), options)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        executable = program("caddy")
        assert executable is not None
        file = self.directory / "start.json"
        file.write_text(f'{{"admin": {{"listen": "{self.admin}", "config": {{"persist": false}}}}}}')
        async with process(self.directory / "proxy.log", executable, "run", "--config", str(file)):
            await until(self._up)
            yield

    async def _up(self) -> bool:
        try:
            await self.proxy.counts()
        except Refused:
            return False
        return True


@pytest.fixture
async def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """One request on a connection that stays."""
    writer.write(f"GET / HTTP/1.1\r\nHost: {SHOP}\r\n\r\n".encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length"))
    return (await reader.readexactly(int(length.split()[1]))).decode().split()[0]


async def test_an_endpoint_change_is_seen_at_once_and_on_a_connection_that_was_open(edge: Edge) -> None:
    async with edge.running(), replica("old") as old, replica("new") as new:
        await edge.apply("steer-1-a", old)
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        assert {await ask(reader, writer) for _ in range(20)} == {"old"}
        await edge.apply("steer-2-b", old, new)
        assert {await ask(reader, writer) for _ in range(60)} == {"old", "new"}
        await edge.apply("steer-3-c", new)
        assert {await ask(reader, writer) for _ in range(20)} == {"new"}
        assert await edge.proxy.serves("steer-3-c") and not await edge.proxy.serves("steer-2-b")
        assert len(edge.configurations) == 1
        writer.close()


async def test_a_proxy_or_a_directory_that_is_new_gets_everything_again(edge: Edge) -> None:
    async with replica("here") as here:
        async with edge.running():
            await edge.apply("steer-1-a", here)
            assert await answers(edge.port, SHOP, 200)
        async with edge.running():
            assert not await edge.proxy.serves("steer-1-a")
            await edge.apply("steer-1-a", here)
            assert await edge.proxy.serves("steer-1-a") and await answers(edge.port, SHOP, 200)
            for path in sorted((edge.directory / "slots").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            assert not await edge.proxy.serves("steer-1-a")
            await edge.apply("steer-1-a", here)
            assert await edge.proxy.serves("steer-1-a") and await answers(edge.port, SHOP, 200)


async def test_a_bridge_that_is_new_leaves_alone_what_is_in_force(edge: Edge) -> None:
    async with edge.running(), replica("here") as here:
        await edge.apply("steer-1-a", here)
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        assert await ask(reader, writer) == "here"
        edge.proxy = Caddy(edge.admin, edge.directory / "slots")
        assert not await edge.proxy.serves("steer-1-a"), "it does not know yet what it wants"
        await edge.apply("steer-1-a", here)
        assert await edge.proxy.serves("steer-1-a")
        assert await ask(reader, writer) == "here", "the connection is the same, so the server is"
        writer.close()


async def test_a_session_sticks_to_its_endpoint_while_others_come_and_go(edge: Edge) -> None:
    """For which such a host has its addresses in the configuration."""
    sticky = PLAIN.model_copy(update={"sticky_sessions": True})
    async with (
        edge.running(),
        replica("a") as a,
        replica("b") as b,
        replica("c") as c,
        aiohttp.ClientSession() as session,
    ):
        asking = Asking(session, edge.port)
        await edge.apply("steer-1-a", a, b, middleware=sticky)
        answer = await asking.whole(SHOP)
        bound, cookie = (await answer.text()).split()[0], answer.cookies[STICKY_COOKIE].value
        kept = {"a": a, "b": b}[bound]
        for number, others in enumerate(((c,), (), (c, b if kept == a else a)), 2):
            await edge.apply(f"steer-{number}-x", kept, *others, middleware=sticky)
            headers = {"Cookie": f"{STICKY_COOKIE}={cookie}"}
            assert {(await asking(SHOP, headers=headers))[1].split()[0] for _ in range(20)} == {bound}


async def test_a_directory_that_cannot_be_written_is_named(edge: Edge) -> None:
    (edge.directory / "slots").write_text("a file")
    async with edge.running():
        with pytest.raises(Refused, match="slots cannot be written"):
            await edge.apply("steer-1-a", "127.0.0.1:1")
