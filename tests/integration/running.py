"""What the tests of the runtime share: instances of the toy service, and conditions to wait for."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from shared.model.deployment import Scale
from shared.model.environment import Environment
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.instance import Instance
from shared.runtime.tasks import end
from shared.subjects import ENVIRONMENT, SCALE, Key
from tests.integration import toy

PATIENCE_SECONDS = 60.0
"""How long a test waits for what has to come: long enough for a machine that does a dozen other things."""


async def eventually(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until the condition holds, by looking; fail when it never does."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        result = condition()
        if isinstance(result, Awaitable):
            result = await result
        if result:
            return result
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come to hold"
        await asyncio.sleep(0.01)


async def ask(bus: Bus, key: Key, replicas: int) -> int:
    """Publish an environment that wants so many; its sequence."""
    environment = Environment.model_validate({"replicas": {"min": replicas, "max": max(replicas, 1)}}, strict=False)
    return await records.put(bus, ENVIRONMENT, key, environment)


async def counts(bus: Bus, key: Key) -> list[int]:
    """Every version of the counter of an environment, in the order of the log."""
    versions = [records.version_of(message) for message in await records.history(bus, SCALE.subject(*key))]
    return [version.record.effective_replicas for version in versions if isinstance(version.record, Scale)]


async def stop_process(pid: int) -> None:
    """SIGSTOP, and wait until every thread has stopped: a signal takes a moment to arrive."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")

    def stopped() -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            return all("\nState:\tT" in (thread / "status").read_text() for thread in threads.iterdir())
        return False

    await eventually(stopped)


async def loaded(follower: Follower) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not follower.caught_up:
            await follower.next(1)


async def received(follower: Follower, count: int) -> list[Message]:
    messages: list[Message] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(messages) < count:
            batch = await follower.next(1)
            assert not isinstance(batch, Restarted)
            messages += batch
    return messages


class Running:
    """An instance that runs in this process: `stop` cleanly, or `crash` without a word."""

    def __init__(self, instance: Instance, task: asyncio.Task[None], bus: Bus) -> None:
        self.instance = instance
        self.task = task
        self.bus = bus

    @property
    def leading(self) -> bool:
        return self.instance.leader.leading

    @property
    def state(self) -> toy.State:
        state: toy.State = self.instance.world.state
        return state

    async def stop(self) -> None:
        self.instance.stop.set()
        await self.task
        await self.bus.close()

    async def crash(self) -> None:
        """As if the process had ended: nothing is handed over."""
        tasks = [self.task, *self.instance._beside]
        commit_bus = self.instance.committer._bus
        await self.bus.close()
        if commit_bus is not None:
            await commit_bus.close()
        await end(*tasks)


Start = Callable[..., Awaitable[Running]]
