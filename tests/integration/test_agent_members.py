"""A pool host under a real agent: what its members are, reported with the instance."""

import asyncio
import http.client
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.agent.members import ask_members
from shared.model.assignment import Instance
from shared.model.run import Healthcheck
from shared.runtime.bus import Bus
from shared.runtime.settings import Settings
from tests.integration.one_node import HTTP, PYTHON, OneNode, until

ROOT = Path(__file__).parents[2]
QUICK = Healthcheck(path="/healthz", interval_seconds=0.1)
HOST = (PYTHON, "-m", "services.agent.pool_host")
GOOD = """
import pathlib, time
while pathlib.Path("hold").exists():
    time.sleep(0.01)
def handle(event):
    return event
def ends(event):
    raise SystemExit(1)
"""


@pytest.fixture
async def node(bus: Bus, settings: Settings, tmp_path: Path) -> AsyncIterator[OneNode]:
    node = OneNode(bus, settings, tmp_path)
    (node.apps / "good.py").write_text(GOOD)
    (node.apps / "bad.py").write_text("raise RuntimeError\n")
    yield node
    await node.clean()


def environment(**members: tuple[str, str]) -> dict[str, str]:
    rows = [{"name": name, "handler": handler, "artifact": file} for name, (file, handler) in members.items()]
    return {"PYTHONPATH": str(ROOT), "STEER_MEMBERS": json.dumps(rows)}


async def has(node: OneNode, name: str, members: dict[str, str]) -> Instance:
    async def look() -> Instance | None:
        found = await node.instance(name)
        return found if found is not None and found.members == members else None

    found = await until(look, f"{name} with {members}")
    assert found is not None
    return found


async def test_the_members_of_a_pool_host_are_reported_and_what_becomes_of_them(node: OneNode) -> None:
    node.start()
    env = environment(good=("good.py", "handle"), ends=("good.py", "ends"), bad=("bad.py", "handle"))
    await node.assign("p-1", command=HOST, ports=HTTP, healthcheck=QUICK, env=env)
    up = await has(node, "p-1", {"good": "ready", "ends": "ready", "bad": "failed"})
    await node.becomes("p-1", "healthy")
    (node.apps / "hold").touch()
    await asyncio.to_thread(call, up.ports["http"], "ends")
    await has(node, "p-1", {"good": "ready", "ends": "restarting", "bad": "failed"})
    (node.apps / "hold").unlink()
    await has(node, "p-1", {"good": "ready", "ends": "ready", "bad": "failed"})
    os.kill(node.pid("p-1"), signal.SIGKILL)
    assert (await node.becomes("p-1", "failed")).members == {}


async def test_a_host_that_does_not_answer_any_more_has_no_members(node: OneNode) -> None:
    node.start()
    await node.assign("p-1", command=HOST, ports=HTTP, env=environment(good=("good.py", "handle")))
    await has(node, "p-1", {"good": "ready"})
    os.kill(node.pid("p-1"), signal.SIGSTOP)
    await has(node, "p-1", {})
    os.kill(node.pid("p-1"), signal.SIGCONT)
    await has(node, "p-1", {"good": "ready"})


async def test_the_members_of_an_adopted_host_are_known(node: OneNode) -> None:
    node.start()
    await node.assign("p-1", command=HOST, ports=HTTP, env=environment(good=("good.py", "handle")))
    await has(node, "p-1", {"good": "ready"})
    await node.stop()
    node.start()
    await node.registered()
    assert (await has(node, "p-1", {"good": "ready"})).state == "healthy"
    await node.delete("p-1")


def call(port: int, name: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", f"/function/{name}")
    assert connection.getresponse().status == 503
    connection.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.0 503 no\r\n\r\n{}", b"HTTP/1.0 200 OK\r\n\r\n[]", b"HTTP/1.0 200 OK\r\n\r\n{", b"nonsense\r\n\r\n"],
)
async def test_an_answer_that_cannot_be_read_is_none(answer: bytes) -> None:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await ask_members("127.0.0.1", port) is None


async def test_a_state_that_is_unknown_is_left_out() -> None:
    body = b'{"members":{"a":{"state":"ready"},"b":{"state":"dreaming"},"c":3}}'

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        writer.close()

    async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await ask_members("127.0.0.1", port) == {"a": "ready"}
