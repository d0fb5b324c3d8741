"""A node with a real agent, real processes and the real server; the test plays the scheduler."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil

from services.agent import processes
from services.agent.config import AgentConfig
from services.agent.journal import Entry, Journal
from services.agent.run import run_agent
from shared import codec, subjects
from shared.errors import Unavailable
from shared.model.assignment import Assignment, Instance, WorkloadRef
from shared.model.node import Node
from shared.model.run import PortSpec, Resources, RunSpec
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.settings import Settings

DEADLINE_SECONDS = 60.0
LOOK_SECONDS = 0.02
NODE = "n1"
HTTP = (PortSpec(name="http", container_port=8080),)
PYTHON = sys.executable
Value = TypeVar("Value")

WEB = """
import http.server, os, pathlib
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if pathlib.Path("sick").exists() else 204)
        self.end_headers()
print("listening on", os.environ["PORT"], flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, 'sleep.py']).wait()"


async def until(look: Callable[[], Awaitable[Value]], reason: str = "what the test waits for") -> Value:
    """Look until it is true, and give back what it was; fails after a minute."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        with contextlib.suppress(Unavailable):
            if found := await look():
                return found
        assert time.monotonic() < deadline, f"{reason} did not come about in {DEADLINE_SECONDS:g} s"
        await asyncio.sleep(LOOK_SECONDS)


def reap() -> None:
    """The agent leaves its replicas running; here they are children of the interpreter that goes on."""
    while processes._children:
        pid, child = processes._children.popitem()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        child.wait()


class OneNode:
    """Agents that follow each other on one node. `bus` is the test's own connection."""

    def __init__(self, bus: Bus, settings: Settings, directory: Path) -> None:
        self.bus = bus
        self.settings = settings
        self.apps = directory / "apps"
        self.apps.mkdir()
        for name, text in {"web": WEB, "sleep": SLEEP, "stubborn": STUBBORN, "parent": PARENT}.items():
            (self.apps / f"{name}.py").write_text(text)
        (directory / "env").mkdir()
        self.env_dir = directory / "env"
        self.data = directory / "data"
        self._agents: list[tuple[asyncio.Task[None], asyncio.Event]] = []

    def start(self, **changes: Any) -> asyncio.Task[None]:
        values: dict[str, Any] = {
            "node": NODE,
            "data_dir": self.data,
            "exec_root": self.apps,
            "env_dir": self.env_dir,
        } | changes
        stop = asyncio.Event()
        task = asyncio.create_task(run_agent(self.settings, AgentConfig(**values), stop))
        self._agents.append((task, stop))
        return task

    async def stop(self) -> None:
        """Stop the agent that was started last."""
        task, stop = self._agents.pop()
        stop.set()
        await asyncio.wait_for(task, DEADLINE_SECONDS)

    async def clean(self) -> None:
        """End everything, replicas included."""
        for task, stop in self._agents:
            stop.set()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(task, DEADLINE_SECONDS)
        for entry in self.journal():
            if entry.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(entry.pid, signal.SIGKILL)
        reap()

    async def assign(self, name: str, script: str = "sleep.py", **changes: Any) -> int:
        """Write an assignment; `run` fields and assignment fields alike, by name."""
        fields = {key: changes.pop(key) for key in list(changes) if key in RunSpec.model_fields}
        run = RunSpec(**({"image": "exec:", "command": (PYTHON, script)} | fields))
        record = Assignment(
            workload=WorkloadRef(kind="environment", key="shop/web/production"),
            run=run,
            resources=Resources(),
            config_hash=codec.config_hash(run, Resources()),
            created_at=datetime.now(UTC),
            **changes,
        )
        return await records.put(self.bus, subjects.ASSIGNMENT, (NODE, name), record)

    async def delete(self, name: str) -> int:
        return await records.put(self.bus, subjects.ASSIGNMENT, (NODE, name), None)

    async def instance(self, name: str) -> Instance | None:
        version = await records.get(self.bus, subjects.INSTANCE, (NODE, name))
        record = version.record if version is not None else None
        assert record is None or isinstance(record, Instance)
        return record

    async def becomes(self, name: str, state: str, sequence: int = 0) -> Instance:
        """The instance, once it has this state (and answers at least this version of the assignment)."""

        async def look() -> Instance | None:
            found = await self.instance(name)
            return found if found and found.state == state and found.assignment_sequence >= sequence else None

        found = await until(look, f"{name} {state}")
        assert found is not None
        return found

    async def history(self, name: str) -> list[Instance]:
        """Every report about an assignment, in order; deletions are left out."""
        messages = await records.history(self.bus, subjects.INSTANCE.subject(NODE, name))
        versions = [records.version_of(message).record for message in messages]
        return [record for record in versions if isinstance(record, Instance)]

    async def registered(self) -> Node:
        async def look() -> Node | None:
            version = await records.get(self.bus, subjects.NODE, (NODE,))
            return version.record if version is not None and isinstance(version.record, Node) else None

        found = await until(look, "the registration of the node")
        assert found is not None
        return found

    def journal(self) -> list[Entry]:
        return Journal(self.data / "replicas").load()

    def pid(self, name: str) -> int:
        pid = next(entry.pid for entry in self.journal() if entry.assignment == name)
        assert pid is not None
        return pid

    def output(self, name: str) -> str:
        path = self.data / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""


async def has_gone(pid: int) -> None:
    async def look() -> bool:
        return not psutil.pid_exists(pid)

    await until(look, f"the end of process {pid}")
