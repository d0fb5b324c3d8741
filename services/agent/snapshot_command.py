"""Making one snapshot: a command that writes one file from the directory of a volume.

The command is the operator's to replace (`--snapshot-command`): `{volume}` is the directory, `{target}` the file to
write. A command that keeps its copy elsewhere writes there where it lies. The file counts once the command has ended
with 0; it is written beside and renamed, so what has its name is whole.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from services.agent.exec_driver import INHERITED
from shared.errors import SteerError

MAX_ERROR_BYTES = 2000


class SnapshotFailed(SteerError):
    """There is no snapshot, and why."""


async def make(command: Sequence[str], volume: Path, target: Path) -> int:
    """Write `target` from `volume`; its size in bytes. Raises `SnapshotFailed`, OSError. Cancelled, nothing is left."""
    partial = await asyncio.to_thread(_prepare, volume, target)
    try:
        code, error = await _run(_filled(command, volume, partial))
        if code != 0:
            raise SnapshotFailed(f"{command[0]} ended with {code}: {error or 'no reason given'}")
        try:
            return await asyncio.to_thread(_keep, partial, target)
        except FileNotFoundError:
            raise SnapshotFailed(f"{command[0]} wrote no file") from None
    finally:
        partial.unlink(missing_ok=True)


def _prepare(volume: Path, target: Path) -> Path:
    """The file to write to, which is not there yet."""
    if not volume.is_dir():
        raise SnapshotFailed("this node has no such volume: no replica has been started with it here")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    return partial


def _filled(command: Sequence[str], volume: Path, target: Path) -> list[str]:
    return [word.replace("{volume}", str(volume)).replace("{target}", str(target)) for word in command]


async def _run(argv: Sequence[str]) -> tuple[int, str]:
    """Exit code and the end of what it said on its standard error."""
    try:
        child = await asyncio.create_subprocess_exec(
            *argv,
            env={name: os.environ[name] for name in INHERITED if name in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise SnapshotFailed(f"cannot run {argv[0]!r}: {error}") from error
    assert child.stderr is not None
    said = b""
    try:
        while chunk := await child.stderr.read(MAX_ERROR_BYTES):
            said = (said + chunk)[-MAX_ERROR_BYTES:]
        code = await child.wait()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
    lines = said.decode(errors="replace").split("\n")
    return code, next((line.strip() for line in reversed(lines) if line.strip()), "")


def _keep(partial: Path, target: Path) -> int:
    with partial.open("rb") as file:
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
    partial.replace(target)
    descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size
