"""What an agent is told when it is started."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PORT_RANGE = (20_000, 32_767)
"""Below the range from which Linux takes the ports of outgoing connections."""
SNAPSHOT_COMMAND = ("tar", "--create", "--gzip", "--file", "{target}", "--directory", "{volume}", ".")
"""A volume that changes while it is read makes `tar` fail, and so the snapshot: half a change is never called whole."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`exec_root` holds the directories that images name, `env_dir` the files that `env_from` names.

    A capacity of None is detected. `data_dir` belongs to one agent: its journal, the logs of its replicas, its volumes
    and their snapshots. `snapshot_command` is argv that writes the file `{target}` from the directory `{volume}`.
    """

    node: str
    data_dir: Path
    exec_root: Path
    env_dir: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    platform: str | None = None
    address: str = "127.0.0.1"
    capacity_cpu_millis: int | None = None
    capacity_memory_mb: int | None = None
    port_range: tuple[int, int] = PORT_RANGE
    stop_replicas_on_exit: bool = False
    snapshot_command: tuple[str, ...] = SNAPSHOT_COMMAND
