"""The volumes of this node: a directory each, and the fence that keeps two replicas from sharing one.

    <data>/volumes/<project>/<app>/<environment>/<name>          the volume
    <data>/volumes/<project>/<app>/<environment>/<name>.epoch    the highest `volume_epoch` admitted, and for whom

The scheduler gives each start of a stateful replica a `volume_epoch` above all earlier ones. The fence is on the disk
before anything is started, and a lower epoch is refused from then on: what was decided earlier and arrives later, or is
read from an old log, starts nothing. A volume that a replica of this node still uses is refused too, whatever the epoch.
A mount path is for drivers that can mount; each replica is told the directory in `STEER_VOLUME_<NAME>`.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from services.agent.driver import DriverError
from shared import codec
from shared.errors import InvalidRecord
from shared.model.base import NAME_PATTERN, Record
from shared.model.run import RunSpec

_TOKEN = re.compile(rf"_?{NAME_PATTERN[1:-1]}")


class Fence(Record):
    """The content of an epoch file."""

    volume_epoch: int
    assignment: str


class Volumes:
    """All volumes of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._users: dict[Path, str] = {}

    def paths(self, workload: str, run: RunSpec) -> dict[str, Path]:
        """Where the volumes of a replica are, by name; they may not be there yet."""
        return {mount.name: self.path(workload, mount.name) for mount in run.volumes}

    def path(self, workload: str, name: str) -> Path:
        """Raises `DriverError` where a token could lead elsewhere."""
        tokens = [*workload.split("/"), name]
        for token in tokens:
            if not _TOKEN.fullmatch(token):
                raise DriverError(f"volume {name!r} of {workload!r}: {token!r} is not a name")
        return self._directory.joinpath(*tokens)

    def hold(self, assignment: str, paths: Mapping[str, Path]) -> None:
        """Take volumes for a replica, until `release`. Raises `DriverError` while another one here has them."""
        for name, path in paths.items():
            if (user := self._users.get(path, assignment)) != assignment:
                raise DriverError(f"volume {name!r}: {user} still uses it on this node")
        for path in paths.values():
            self._users[path] = assignment

    def release(self, assignment: str) -> None:
        for path in [path for path, user in self._users.items() if user == assignment]:
            del self._users[path]

    def admit(self, assignment: str, paths: Mapping[str, Path], epoch: int) -> None:
        """Make the volumes, and write their fences durably. Raises `DriverError` for an epoch that is over; OSError."""
        for name, path in paths.items():
            fence = _read(_fence_of(path))
            if fence is None or fence.volume_epoch < epoch:
                continue
            if fence.volume_epoch > epoch or fence.assignment != assignment:
                raise DriverError(
                    f"volume {name!r}: epoch {epoch} is over, {fence.assignment} was admitted with"
                    f" {fence.volume_epoch} ({_fence_of(path)})"
                )
        for path in paths.values():
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(_fence_of(path), Fence(volume_epoch=epoch, assignment=assignment))
        for directory in {parent for path in paths.values() for parent in (path, *path.parents)}:
            if directory.is_relative_to(self._directory):
                _sync(directory)


def _fence_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.epoch")


def _read(path: Path) -> Fence | None:
    try:
        return codec.validate(Fence, str(path), path.read_bytes())
    except FileNotFoundError:
        return None
    except InvalidRecord as error:
        raise DriverError(f"the fence of a volume cannot be read, so nothing is started: {error}") from error


def _write(path: Path, fence: Fence) -> None:
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(codec.encode(fence))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
