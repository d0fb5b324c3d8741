"""HAProxy: its file is replaced, the master starts new workers with it, and the old ones end with their connections.

The file is checked before, so that a bad one never replaces a good one. The new worker has the mark of the version in
its description; it answers on the statistics socket, which the master hands over with the listeners, once it serves.
A version that is the same configuration as the one in force, but for its mark, is no reason for a reload.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from services.routes.bridge.bridge import Refused
from services.routes.bridge.statistics import Counts, of_haproxy
from services.routes.render import Rendered

CHECK_SECONDS = 60.0
RELOAD_SECONDS = 15.0
ASK_SECONDS = 5.0
LOOK_SECONDS = 0.02


@dataclass(slots=True)
class HAProxy:
    """`config` is the file that the master reads, `socket` that of the statistics.

    It is told to reload by its `master` socket (`haproxy -W -S PATH`), else by SIGUSR2 to the process in `pid_file`.
    """

    config: Path
    socket: Path
    master: Path | None = None
    pid_file: Path | None = None
    program: str = "haproxy"
    pause_seconds: float = 0.5
    _content: bytes = b""
    _marks: tuple[str, str] = ("", "")
    """The digest of what is in force without its mark; the mark of the version, and the one inside the configuration."""

    async def apply(self, rendered: Rendered, mark: str) -> None:
        body = rendered.body
        content = sha256(body.replace(mark, "").encode()).digest()
        if content != self._content or await self._inside() != self._marks[1]:
            await self._replace(body, mark)
            self._marks = (mark, mark)
        self._content, self._marks = content, (mark, self._marks[1])

    async def serves(self, mark: str) -> bool:
        inside = self._marks[1] if mark == self._marks[0] else mark
        return await self._ask_inside() == inside

    async def _replace(self, body: str, mark: str) -> None:
        new = self.config.with_name(f".{self.config.name}.new")
        try:
            await asyncio.to_thread(_write, new, body)
            await self._check(new)
            new.replace(self.config)
        except OSError as error:
            raise Refused(f"{self.config} cannot be replaced: {error}") from error
        await self._reload()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELOAD_SECONDS):
                while await self._inside() != mark:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(LOOK_SECONDS)
                return
        raise Refused(f"HAProxy has not taken {mark} in {RELOAD_SECONDS:g} s; its log tells why")

    async def counts(self) -> dict[str, Counts]:
        return of_haproxy(await self._ask(self.socket, "show stat -1 2 -1"))

    async def _inside(self) -> str:
        """The mark of what is in force; empty where there is no answer."""
        try:
            return await self._ask_inside()
        except Refused:
            return ""

    async def _ask_inside(self) -> str:
        lines = (await self._ask(self.socket, "show info")).lower().splitlines()
        return next((line.partition(": ")[2] for line in lines if line.startswith("description: ")), "")

    async def _check(self, file: Path) -> None:
        checking = await asyncio.create_subprocess_exec(
            *(self.program, "-c", "-f", str(file)), stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
        )
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                said, _ = await checking.communicate()
        except TimeoutError:
            checking.kill()
            await checking.wait()
            raise Refused(f"HAProxy did not check the configuration in {CHECK_SECONDS:g} s") from None
        if checking.returncode:
            raise Refused(f"HAProxy refuses the configuration: {said.decode(errors='replace').strip()[:500]}")

    async def _reload(self) -> None:
        if self.master is not None:
            await self._ask(self.master, "reload")
            return
        assert self.pid_file is not None
        try:
            os.kill(int(self.pid_file.read_text()), signal.SIGUSR2)
        except (OSError, ValueError) as error:
            raise Refused(f"HAProxy does not run: {self.pid_file}: {error}") from error

    async def _ask(self, path: Path, command: str) -> str:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(f"{command}\n".encode())
                    return (await reader.read()).decode(errors="replace")
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            raise Refused(f"HAProxy does not answer on {path}: {error or type(error).__name__}") from error


def _write(path: Path, text: str) -> None:
    """Readable by nobody else: it holds the hashes of passwords."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
