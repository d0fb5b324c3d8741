"""What runs beside the loop of an instance is for ever: an instance without it ends, and says why."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from shared.runtime import bus as buses
from shared.runtime.bus import Bus
from shared.runtime.instance import Instance
from shared.runtime.process import run
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from tests.integration import toy
from tests.integration.running import ask, eventually
from tests.integration.test_runtime_api import get

KEY = ("shop", "web", "production")


async def dies(instance: Instance) -> None:
    raise ZeroDivisionError("nothing to divide by")


async def returns(instance: Instance) -> None:
    return


@pytest.mark.parametrize(
    ("task", "reason"), [(dies, "ZeroDivisionError('nothing to divide by')"), (returns, "it returned")]
)
def test_a_process_whose_task_has_ended_says_which_and_why_and_ends_with_1(
    settings: Settings, task: object, reason: str
) -> None:
    with capture_logs() as logs, pytest.raises(SystemExit) as ended:
        run(lambda stop: serve(toy.service(), settings, stop=stop, alongside=[task]))  # type: ignore[list-item]
    assert ended.value.code == 1
    told = [entry for entry in logs if entry["log_level"] == "error"]
    assert [(entry.get("task"), entry["reason"]) for entry in told] == [
        (task.__name__, reason),  # type: ignore[attr-defined]
        (None, f"{task.__name__} has ended: {reason}"),  # type: ignore[attr-defined]
    ]


async def test_health_names_the_task_that_has_ended_until_the_instance_has(settings: Settings, bus: Bus) -> None:
    die = asyncio.Event()

    async def dies_later(instance: Instance) -> None:
        await die.wait()
        await dies(instance)

    own = await buses.connect(replace(settings, metrics_port=0), "toy")
    instance = Instance(toy.service(), own, asyncio.Event(), [dies_later])
    task = asyncio.create_task(instance.run())
    await eventually(lambda: instance.leader.leading)
    assert await get(instance.health.port, "/healthz") == (200, "ok\n")
    async with instance.world.lock.reader:  # the loop cannot fold, so it is still there to be asked
        sequence = await ask(bus, KEY, 1)
        await eventually(lambda: instance.follower.position >= sequence)
        die.set()
        reason = "dies_later has ended: ZeroDivisionError('nothing to divide by')\n"

        async def told() -> bool:
            return await get(instance.health.port, "/healthz") == (503, reason)

        await eventually(told)
        assert await get(instance.health.port, "/readyz") == (503, reason)
    with pytest.raises(Exception, match="dies_later has ended"):
        await asyncio.wait_for(task, 60)
    await own.close()
