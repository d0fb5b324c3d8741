"""The `exec` driver: a replica is a program of this machine. Image `exec:<dir>` is a directory below the exec root.

The command is argv, run in that directory without a shell. A replica gets no variable of the agent's but those that
programs need to run at all: the agent's own may hold its keys to the bus.

What a replica starts is in its process group and ends with it; what leaves the group by itself (`setsid`) is not
followed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.agent import processes
from services.agent.config import AgentConfig
from services.agent.confine import Escape, below
from services.agent.driver import DriverError, Exit, Handle, Launch
from services.agent.host_ports import HostPorts

SCHEME = "exec:"
INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")
MAX_ENV_FILE_BYTES = 1024 * 1024
KEEP_LOGS_SECONDS = 7 * 86_400


class ExecDriver:
    """Runs replicas as processes. See `Driver`."""

    name = "exec"

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._ports = HostPorts(*config.port_range)
        self._logs = config.data_dir / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)

    def log_path(self, assignment: str) -> Path:
        return self._logs / f"{assignment}.log"

    def ports(self, launch: Launch) -> Mapping[str, int]:
        return self._ports.take(launch.run.ports)

    def reserve(self, ports: Mapping[str, int]) -> None:
        self._ports.reserve(ports)

    def release(self, ports: Mapping[str, int]) -> None:
        self._ports.release(ports)

    async def start(self, launch: Launch, ports: Mapping[str, int]) -> Handle:
        return await asyncio.to_thread(self._start, launch, ports)

    def _start(self, launch: Launch, ports: Mapping[str, int]) -> Handle:
        run = launch.run
        if not run.command:
            raise DriverError("no command: the exec driver runs an argv")
        directory = self._directory(run.image)
        environment = self._environment(launch, ports)
        self._prune_logs()
        try:
            return processes.spawn(
                _resolve(run.command, directory, environment),
                directory=directory,
                environment=environment,
                log=self.log_path(launch.assignment),
            )
        except (OSError, ValueError) as error:
            raise DriverError(f"cannot run {run.command[0]!r} in {run.image!r}: {error}") from error

    async def find(self, launch: Launch, handle: Handle | None) -> Handle | None:
        if handle is not None:
            return handle if processes.alive(handle, self._marks(launch)) else None
        return await asyncio.to_thread(processes.find, self._marks(launch))

    async def wait(self, handle: Handle) -> Exit:
        return await processes.ended(handle)

    async def stop(self, handle: Handle, grace_seconds: float) -> Exit:
        return await processes.end(handle, grace_seconds)

    async def execute(self, launch: Launch, ports: Mapping[str, int], command: Sequence[str]) -> int:
        directory = self._directory(launch.run.image)
        environment = await asyncio.to_thread(self._environment, launch, ports)
        # A process of a probe must not be taken for the replica by `find`.
        environment["STEER_PROBE"] = environment.pop("STEER_ASSIGNMENT")
        child = await asyncio.create_subprocess_exec(
            *_resolve(command, directory, environment),
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return await child.wait()
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()

    def _directory(self, image: str) -> Path:
        if not image.startswith(SCHEME):
            raise DriverError(f"image {image!r} is not {SCHEME}<directory>, and this node has only the exec driver")
        try:
            directory = below(self._config.exec_root, image.removeprefix(SCHEME))
        except Escape as error:
            raise DriverError(f"image {image!r}: {error}") from None
        if not directory.is_dir():
            raise DriverError(f"image {image!r}: {directory} is not a directory")
        return directory

    def _marks(self, launch: Launch) -> dict[str, str]:
        """By these a process is known again; the data directory tells this agent from others on the same machine."""
        return {
            "STEER_NODE": self._config.node,
            "STEER_ASSIGNMENT": launch.assignment,
            "STEER_AGENT_DATA": str(self._config.data_dir.resolve()),
        }

    def _environment(self, launch: Launch, ports: Mapping[str, int]) -> dict[str, str]:
        """Later ones win: files of the node, the record, and what the replica must know of its place."""
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        for name in launch.run.env_from:
            environment |= self._read_environment(name)
        environment |= launch.run.env
        if ports:
            environment["PORT"] = str(next(iter(ports.values())))
        environment |= {f"STEER_PORT_{_upper(name)}": str(port) for name, port in ports.items()}
        environment |= {f"STEER_VOLUME_{_upper(name)}": str(path) for name, path in launch.volumes.items()}
        return environment | self._marks(launch) | {"STEER_ENVIRONMENT": launch.workload}

    def _read_environment(self, name: str) -> dict[str, str]:
        """`NAME=value` per line; empty lines and those that start with # are skipped."""
        if self._config.env_dir is None:
            raise DriverError(f"env_from {name!r}: this agent has no directory for such files (--env-dir)")
        try:
            path = below(self._config.env_dir, name)
            if path.stat().st_size > MAX_ENV_FILE_BYTES:
                raise DriverError(f"env_from {name!r}: larger than {MAX_ENV_FILE_BYTES} bytes")
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DriverError(f"env_from {name!r}: {error}") from None
        lines = [line.strip() for line in text.splitlines()]
        pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
        if any(not equals or not variable.strip() for variable, equals, _ in pairs):
            raise DriverError(f"env_from {name!r}: each line must be NAME=value")
        return {variable.strip(): value for variable, _, value in pairs}

    def _prune_logs(self) -> None:
        """Logs that nothing has written to for a week go."""
        oldest = time.time() - KEEP_LOGS_SECONDS
        for log in self._logs.glob("*.log"):
            if log.stat().st_mtime < oldest:
                log.unlink(missing_ok=True)


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")


def _resolve(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> list[str]:
    """argv with its program found: a path counts from the directory of the image, a bare name from the PATH."""
    program = command[0]
    found = str(directory / program) if "/" in program else shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise DriverError(f"program {program!r} is not on the PATH of this node")
    return [found, *command[1:]]
