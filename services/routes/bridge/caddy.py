"""Caddy, by its admin API: `POST /load` is answered when the configuration is in force, or with why it is not."""

import aiohttp

from services.routes.bridge.bridge import Refused
from services.routes.bridge.statistics import Counts, of_caddy
from services.routes.render.plan import Rendered

LOAD_SECONDS = 30.0
ASK_SECONDS = 5.0


class Caddy:
    """`admin` is `host:port`."""

    pause_seconds = 0.1

    def __init__(self, admin: str) -> None:
        self._url = f"http://{admin}"

    async def apply(self, rendered: Rendered, mark: str) -> None:
        status, text = await self._ask("POST", "/load", LOAD_SECONDS, rendered.body)
        if status != 200:
            raise Refused(f"Caddy answers {status}: {text.strip()[:500]}")

    async def serves(self, mark: str) -> bool:
        return (await self._ask("GET", f"/id/{mark}", ASK_SECONDS))[0] == 200

    async def counts(self) -> dict[str, Counts]:
        return of_caddy((await self._ask("GET", "/metrics", ASK_SECONDS))[1])

    async def _ask(self, method: str, path: str, within: float, body: str = "") -> tuple[int, str]:
        headers = {"Content-Type": "application/json"} if body else {}
        timeout = aiohttp.ClientTimeout(total=within)
        connector = aiohttp.TCPConnector(force_close=True)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
                session.request(method, f"{self._url}{path}", data=body or None, headers=headers) as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refused(f"Caddy does not answer at {self._url}: {error or type(error).__name__}") from error
