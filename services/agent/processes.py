"""Processes of this machine that outlive the agent: started in a group of their own, watched and ended by pid.

`asyncio`'s and `subprocess`' own objects kill or warn about a process that is left running, so a pid and its start
time are all that is kept. A child of this interpreter can tell its exit code; a process that was adopted cannot.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from services.agent.driver import Exit, Handle

POLL_SECONDS = 0.05
START_TIME_TOLERANCE_SECONDS = 2.0
"""The start time of a process is counted from the boot time, which an adjustment of the clock may move a little."""

KILL_SECONDS = 10.0
"""How long a killed process may take to vanish before it is given up (it hangs in the kernel)."""

# A Popen that is dropped while its process runs warns and loses the exit code. One agent per interpreter is the rule;
# where there are several (tests), each still gets the code of what an earlier one started.
_children: dict[int, subprocess.Popen[bytes]] = {}


def spawn(command: Sequence[str], *, directory: Path, environment: Mapping[str, str], log: Path) -> Handle:
    """Start a process in a new session, its output appended to `log`. Raises OSError."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(command),
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    try:
        return Handle(child.pid, psutil.Process(child.pid).create_time())
    except psutil.Error:
        return Handle(child.pid, time.time())


def alive(handle: Handle, marks: Mapping[str, str] | None = None) -> bool:
    """Whether this very process runs: the pid may belong to another one by now.

    Its start time tells; where the clock was set meanwhile, the variables that it was started with (`marks`) do.
    """
    try:
        process = psutil.Process(handle.pid)
        if process.status() == psutil.STATUS_ZOMBIE and handle.pid not in _children:
            return False
        if abs(process.create_time() - handle.started_at) <= START_TIME_TOLERANCE_SECONDS:
            return True
        return marks is not None and _leads_with(process, marks)
    except (psutil.Error, OSError):
        return False


def find(marks: Mapping[str, str]) -> Handle | None:
    """The leader of a process group that was started with all of these variables."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if _leads_with(process, marks):
                return Handle(process.pid, process.create_time())
    return None


def _leads_with(process: psutil.Process, marks: Mapping[str, str]) -> bool:
    if os.getpgid(process.pid) != process.pid:
        return False
    environment = process.environ()
    return all(environment.get(name) == value for name, value in marks.items())


async def ended(handle: Handle) -> Exit:
    """Wait until the process has ended; what is left of its group is killed."""
    await _gone(handle)
    code = _reap(handle.pid)
    _signal_group(handle.pid, signal.SIGKILL)
    return describe(code)


async def end(handle: Handle, grace_seconds: float) -> Exit:
    """SIGTERM to the group, and SIGKILL to what is left of it after the grace."""
    deadline = time.monotonic() + grace_seconds
    _signal_group(handle.pid, signal.SIGTERM)
    code = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + grace_seconds):
            await _gone(handle)
    if not _is_running(handle):
        code = _reap(handle.pid)
    while _group_exists(handle.pid) and time.monotonic() < deadline:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(POLL_SECONDS)
    killed = _signal_group(handle.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILL_SECONDS):
            await _gone(handle)
    code = code if code is not None else _reap(handle.pid)
    how = f"killed after the grace of {grace_seconds:g} s" if killed else "stopped"
    return Exit(code, how)


def describe(code: int | None) -> Exit:
    """An exit in words; a signal counts as 128 and its number, as a shell has it."""
    if code is None:
        return Exit(None, "ended; the exit code is unknown, because an earlier agent had started it")
    if code > 128:
        with contextlib.suppress(ValueError):
            return Exit(code, f"ended by {signal.Signals(code - 128).name}")
    return Exit(code, f"exited with code {code}")


def _reap(pid: int) -> int | None:
    child = _children.get(pid)
    if child is None or (code := child.poll()) is None:
        return None
    del _children[pid]
    return code if code >= 0 else 128 - code


def _signal_group(group: int, number: signal.Signals) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group of zombies
        return False
    return True


def _is_running(handle: Handle) -> bool:
    child = _children.get(handle.pid)
    return child.poll() is None if child is not None else alive(handle)


async def _gone(handle: Handle) -> None:
    """Return when the process is not running any more: by pidfd where there is one, else by looking again and again."""
    try:
        descriptor = os.pidfd_open(handle.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        while _is_running(handle):  # noqa: ASYNC110 - without a pidfd the kernel tells nobody
            await asyncio.sleep(POLL_SECONDS)
        return
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        if _is_running(handle):
            await ready.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
