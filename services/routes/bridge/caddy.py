"""Caddy, by its admin API: `POST /load` is answered when the configuration is in force, or with why it is not.

With `slots` an endpoint change is a change of files, and Caddy is told only of a configuration that it does not have.
"""

import asyncio
from pathlib import Path

import aiohttp

from services.routes.bridge.bridge import Refused
from services.routes.bridge.slots import Slots
from services.routes.bridge.statistics import Counts, of_caddy
from services.routes.render import Rendered

LOAD_SECONDS = 30.0
ASK_SECONDS = 5.0
UNIX = "unix/"


class Caddy:
    """`admin` is `host:port`, or `unix/` and the path of a socket; `slots` the directory that is rendered for."""

    pause_seconds = 0.1

    def __init__(self, admin: str, slots: Path | None = None) -> None:
        self._admin = admin
        self._slots = Slots(slots) if slots is not None else None
        self._inside = self._marked = ""

    async def apply(self, rendered: Rendered, mark: str) -> None:
        if self._slots is None:
            await self._load(rendered)
            return
        loaded = await self._has(rendered.mark)
        anew = bool(self._marked) and not self._slots.has(self._marked)
        try:
            await asyncio.to_thread(self._slots.write, rendered.slots, anew=anew)
            if not loaded:
                await self._load(rendered)
            self._slots.close(mark)
            self._inside, self._marked = rendered.mark, mark
            if not loaded:
                await asyncio.to_thread(self._slots.prune, rendered.slots)
        except OSError as error:
            raise Refused(f"{self._slots.directory} cannot be written: {error}") from error

    async def serves(self, mark: str) -> bool:
        if self._slots is None:
            return await self._has(mark)
        return self._slots.has(mark) and await self._has(self._inside)

    async def counts(self) -> dict[str, Counts]:
        return of_caddy((await self._ask("GET", "/metrics", ASK_SECONDS))[1])

    async def _load(self, rendered: Rendered) -> None:
        status, text = await self._ask("POST", "/load", LOAD_SECONDS, rendered.body)
        if status != 200:
            raise Refused(f"Caddy answers {status}: {text.strip()[:500]}")

    async def _has(self, mark: str) -> bool:
        return bool(mark) and (await self._ask("GET", f"/id/{mark}", ASK_SECONDS))[0] == 200

    async def _ask(self, method: str, path: str, within: float, body: str = "") -> tuple[int, str]:
        headers = {"Content-Type": "application/json"} if body else {}
        timeout = aiohttp.ClientTimeout(total=within)
        unix = self._admin.startswith(UNIX)
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(self._admin.removeprefix(UNIX), force_close=True)
            if unix
            else aiohttp.TCPConnector(force_close=True)
        )
        url = f"http://{'127.0.0.1' if unix else self._admin}{path}"
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
                session.request(method, url, data=body or None, headers=headers) as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refused(f"Caddy does not answer at {self._admin}: {error or type(error).__name__}") from error
