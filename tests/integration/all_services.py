"""`python -m tests.integration.all_services`: an instance of each of the four services in one process."""

import asyncio

import uvloop

from services.cli.security import SERVICES
from shared.runtime.run import serve
from shared.runtime.settings import Settings


async def main() -> None:
    settings = Settings.from_environment()
    never = asyncio.Event()
    await asyncio.gather(*(serve(each, settings, stop=never) for each in SERVICES))


if __name__ == "__main__":
    uvloop.run(main())
