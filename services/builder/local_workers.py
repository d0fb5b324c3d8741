"""Workers as processes of this machine: `python -m services.builder.worker`, one for each ordinal, kept running."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from shared.runtime.kept import Kept

log = structlog.get_logger(__name__)


class LocalWorkers:
    """See `Workers`. `arguments` go to every worker; its output goes to a file of its name below `directory`."""

    def __init__(self, pool: str, prefix: str, directory: Path, arguments: Sequence[str]) -> None:
        self._pool, self._prefix = pool, prefix
        self._directory, self._arguments = directory, tuple(arguments)
        self._kept: dict[int, Kept] = {}

    def name(self, ordinal: int) -> str:
        return f"{self._prefix}-{ordinal}"

    def ordinals(self) -> set[int]:
        return set(self._kept)

    async def start(self, ordinal: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        name = self.name(ordinal)
        argv = [
            sys.executable, "-m", "services.builder.worker",
            "--pool", self._pool, "--name", name, "--ordinal", str(ordinal),
            "--data", str(self._directory / name), *self._arguments,
        ]  # fmt: skip
        output = self._directory / f"{name}.log"
        kept = Kept(argv, _environment(os.environ), output, lambda text: log.warning(text, worker=name))
        await kept.start()
        self._kept[ordinal] = kept

    async def stop(self, ordinal: int) -> None:
        """Returns when it has ended: it finishes what it builds first."""
        kept = self._kept.get(ordinal)
        if kept is not None:
            await kept.end()
            self._kept.pop(ordinal, None)


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The scaler's own options are not the workers'."""
    return {name: value for name, value in inherited.items() if not name.startswith("STEER_SCALER_")}
