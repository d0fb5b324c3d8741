"""Two hundred followers of the routes in a process of their own: `python -m tests.faults.storm URL REPLICAS COUNT`.

Each has its own connection. Twice a second a line of JSON says how many have one, and which is the oldest version that
one of them serves: versions are served only when their digest agrees.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import uvloop

from shared.runtime import bus as buses
from shared.runtime import logs
from shared.runtime.bus import Bus
from shared.runtime.follow import follow_routes
from shared.runtime.settings import Settings

ROOT = Path(__file__).parents[2]
SAY_SECONDS = 0.5
AT_ONCE = 20


async def main(url: str, replicas: int, count: int) -> None:
    settings = Settings(nats_url=url, replicas=replicas, log_level="error")
    logs.configure(settings, service="storm")
    served: dict[int, int] = {}
    open_buses: list[Bus] = []
    room = asyncio.Semaphore(AT_ONCE)

    async def follow(number: int) -> None:
        async with room:
            bus = await buses.connect(settings, f"storm-{number}")
        open_buses.append(bus)
        async with contextlib.aclosing(follow_routes(bus)) as versions:
            async for version in versions:
                served[number] = version.number

    followers = [asyncio.create_task(follow(number)) for number in range(count)]
    while True:
        await asyncio.sleep(SAY_SECONDS)
        for each in followers:
            if each.done():
                each.result()
        connected = sum(bus.connected.is_set() for bus in open_buses)
        oldest = min(served.values()) if len(served) == count else 0
        print(json.dumps({"connected": connected, "oldest": oldest}), flush=True)  # noqa: T201


class Storm:
    """The process, seen from the one that starts it: `said` is its last line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = {"connected": 0, "oldest": 0}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, settings: Settings, count: int) -> "Storm":
        arguments = (settings.nats_url, str(settings.replicas), str(count))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.storm", *arguments), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        return cls(process)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.said = json.loads(line)

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
