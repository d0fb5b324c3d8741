"""A proxy as people run it: the program, its bridge and an activator, each a process; and requests through it."""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from services.cli.traffic import get
from shared.runtime import tasks
from shared.runtime.embedded import free_port
from tests.end_to_end.running import ROOT, environment

RATE = 200
OPEN = 40
"""So many requests may be under way at most: a machine that cannot keep up gets fewer a second, not more at a time."""
REQUEST_SECONDS = 10.0
START_SECONDS = 60.0
LOOK_SECONDS = 0.1


def program(name: str) -> str | None:
    """Beside the interpreter, else on the PATH, the places for administrators included."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.is_file() else shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass
class Edge:
    """Where a proxy listens."""

    proxy: str
    port: int
    directory: Path

    async def serves(self, *hosts: str) -> bool:
        return all([await answers(self.port, host, 200) for host in hosts])

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.directory.glob("*.log")))


@asynccontextmanager
async def activator(url: str, directory: Path) -> AsyncIterator[str]:
    """Its address, once it answers."""
    port = free_port()
    command = (sys.executable, "-m", "services.activator", "--name", "activator-1", "--listen", f"127.0.0.1:{port}")
    async with process(directory / "activator.log", *command, url=url):
        await until(lambda: answers(port, "nobody.example.com", 404))
        yield f"127.0.0.1:{port}"


@asynccontextmanager
async def process(
    log: Path, *command: str, url: str = "", sockets: tuple[int, ...] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    variables = environment() | ({"STEER_NATS_URL": url} if url else {})
    with log.open("ab") as output:
        child = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=variables, stdout=output, stderr=output, pass_fds=sockets
        )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), 60)
        except TimeoutError:
            child.kill()
            await child.wait()


@asynccontextmanager
async def edge(proxy: str, url: str, directory: Path, activator: str) -> AsyncIterator[Edge]:
    """The proxy serves by the routes of the log when this is entered, if only with 404."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024) if proxy == "caddy" else None
    port = int(listener.getsockname()[1]) if listener else free_port()
    found = Edge(proxy, port, directory)
    admin = free_port()
    config = directory / "haproxy.cfg"
    http = f"fd/{listener.fileno()}" if listener else f"127.0.0.1:{found.port}"
    where = ("--http", http, "--activator", activator)
    sockets = tempfile.TemporaryDirectory(prefix="steer-")  # HAProxy takes a path of 97 characters at most
    statistics, master = (Path(sockets.name) / name for name in ("stats.sock", "master.sock"))
    told = {
        "caddy": ("--admin", f"127.0.0.1:{admin}", "--slots", str(directory / "slots")),
        "haproxy": ("--config", str(config), "--socket", str(statistics), "--master", str(master)),
    }[proxy]
    executable = program(proxy)
    assert executable is not None
    python = (sys.executable, "-m")
    async with AsyncExitStack() as stack:
        stack.enter_context(sockets)

        async def start(name: str, *command: str) -> None:
            open_ones = (listener.fileno(),) if listener and name == "caddy" else ()
            await stack.enter_async_context(process(directory / f"{name}.log", *command, url=url, sockets=open_ones))

        if listener is not None:
            stack.callback(listener.close)

        if proxy == "caddy":
            (directory / "caddy.json").write_text(f'{{"admin": {{"listen": "127.0.0.1:{admin}"}}}}')
            await start("caddy", executable, "run", "--config", str(directory / "caddy.json"))
        bridge = ("services.routes.bridge", "--proxy", proxy, "--name", f"edge-{proxy}")
        more = () if proxy == "caddy" else ("--program", executable)
        await start("bridge", *python, *bridge, *where, *told, *more)
        if proxy == "haproxy":
            await until(config.exists)
            await start("haproxy", executable, "-W", "-S", str(master), "-f", str(config))
        await until(lambda: answers(found.port, "nobody.example.com", 404))
        yield found


async def answers(port: int, host: str, status: int, seconds: float = 5) -> bool:
    try:
        return (await asyncio.wait_for(get(f"127.0.0.1:{port}", host, "/"), seconds))[0] == status
    except (OSError, EOFError, TimeoutError):
        return False


async def until(condition: Callable[[], object], seconds: float = START_SECONDS) -> None:
    """Look until the condition holds."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = condition()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"did not come about in {seconds:g} s") from None


async def exchange(port: int, host: str, path: str) -> tuple[int, str]:
    """Status and body of one GET on a connection of its own; cheap, as there are thousands of them."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bytes] = loop.create_future()
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    transport, _ = await loop.create_connection(lambda: _Exchange(request, ended), "127.0.0.1", port)
    try:
        head, separator, body = (await ended).partition(b"\r\n\r\n")
    finally:
        transport.abort()
    if not separator:
        raise EOFError(f"the connection ended after {head[:40]!r}")
    return int(head.split()[1]), body.decode()


class _Exchange(asyncio.Protocol):
    def __init__(self, request: bytes, ended: asyncio.Future[bytes]) -> None:
        self._request, self._ended, self._read = request, ended, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._read += data

    def connection_lost(self, error: Exception | None) -> None:
        if self._ended.done():
            return
        if error is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(self._read)


@dataclass
class Load:
    """Requests at a steady rate, each on a connection of its own, whether or not those before are answered.

    None is ever sent a second time.
    """

    port: int
    host: str
    path: str
    bodies: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    open: int = 0
    _task: asyncio.Task[None] | None = None
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def sent(self) -> int:
        return self.bodies.total() + len(self.failed) + self.open

    def start(self) -> None:
        self._task = asyncio.create_task(self._send())

    async def stop(self) -> None:
        """No more; wait for what is under way."""
        await tasks.end(self._task)
        await asyncio.gather(*self._under_way)

    def answered(self, text: str) -> int:
        return sum(count for body, count in self.bodies.items() if text in body)

    async def more(self, count: int) -> None:
        """Until so many more have been sent."""
        goal = self.sent + count
        await until(lambda: self.sent >= goal)

    async def _send(self) -> None:
        clock = asyncio.get_running_loop().time
        began, sent = clock(), 0
        while True:
            while sent < (clock() - began) * RATE and self.open < OPEN:
                self.open += 1
                task = asyncio.create_task(self._request())
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
                sent += 1
            sent = max(
                sent, int((clock() - began) * RATE) - OPEN
            )  # what a stalled machine could not send is not made up
            await asyncio.sleep(1 / RATE)

    async def _request(self) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                status, body = await exchange(self.port, self.host, self.path)
            if status == 200:
                self.bodies[body] += 1
            else:
                self.failed.append(f"status {status}: {body[:100]}")
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.failed.append(f"{type(error).__name__}: {error}")
        finally:
            self.open -= 1
