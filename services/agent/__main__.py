"""`python -m services.agent`: the agent of this machine. Each option is also a variable `STEER_AGENT_<OPTION>`.

How to reach the bus is told by the environment alone (`STEER_NATS_URL` and its kin), as for every process.
Exit codes: 0 stopped, 1 the connection to the bus is gone for good, 2 a setting cannot be used.
"""

import re
import shlex
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

import shared.runtime  # noqa: F401 - first, for what its libraries then do not import
from services.agent.config import PORT_RANGE, SNAPSHOT_COMMAND, AgentConfig
from services.agent.run import run_agent
from shared.errors import ConfigurationError
from shared.model.base import NAME_PATTERN
from shared.runtime import logs
from shared.runtime.process import run, starting
from shared.runtime.settings import Settings


def _option(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, envvar=f"STEER_AGENT_{name.upper().replace('-', '_')}")


DEFAULT_SNAPSHOT_COMMAND = shlex.join(SNAPSHOT_COMMAND)
Labels = Annotated[
    list[str] | None,
    _option("label", "A label key=value, as region=eu; may be repeated (in the variable: spaces between)."),
]
SnapshotCommand = Annotated[
    str, _option("snapshot-command", "What writes the file {target} from the directory {volume}; no shell.")
]


def main(
    *,
    exec_root: Annotated[Path, _option("exec-root", "The directory below which images exec:<dir> lie.")],
    data: Annotated[Path, _option("data", "Where the agent keeps its journal and the logs of its replicas.")],
    node: Annotated[str, _option("node", "The name of this node; by default that of the host.")] = "",
    env_dir: Annotated[Path | None, _option("env-dir", "The directory of the files that env_from names.")] = None,
    label: Labels = None,
    platform: Annotated[str, _option("platform", "As linux/amd64; by default detected.")] = "",
    address: Annotated[str, _option("address", "Where proxies reach the replicas of this node.")] = "127.0.0.1",
    capacity_cpu_millis: Annotated[
        int | None, _option("capacity-cpu-millis", "Thousandths of a core; by default all.")
    ] = None,
    capacity_memory_mb: Annotated[int | None, _option("capacity-memory-mb", "MiB; by default all.")] = None,
    port_range: Annotated[str, _option("port-range", "Host ports for replicas.")] = f"{PORT_RANGE[0]}-{PORT_RANGE[1]}",
    stop_replicas_on_exit: Annotated[
        bool, _option("stop-replicas-on-exit", "Stop the replicas too; by default they go on and are adopted.")
    ] = False,
    snapshot_command: SnapshotCommand = DEFAULT_SNAPSHOT_COMMAND,
) -> None:
    """Run the replicas that are assigned to this node."""
    with starting():
        config = AgentConfig(
            node=_node(node),
            data_dir=data,
            exec_root=_directory("exec-root", exec_root),
            env_dir=None if env_dir is None else _directory("env-dir", env_dir),
            labels=dict(map(_label, label or ())),
            platform=platform or None,
            address=address,
            capacity_cpu_millis=_capacity("capacity-cpu-millis", capacity_cpu_millis),
            capacity_memory_mb=_capacity("capacity-memory-mb", capacity_memory_mb),
            port_range=_port_range(port_range),
            stop_replicas_on_exit=stop_replicas_on_exit,
            snapshot_command=_command(snapshot_command),
        )
        settings = Settings.from_environment()
    logs.configure(settings, service="agent", node=config.node)
    run(lambda stop: run_agent(settings, config, stop), ended="ended; replicas go on")


def _node(given: str) -> str:
    name = given or socket.gethostname().partition(".")[0].lower()
    if not re.fullmatch(NAME_PATTERN[1:-1], name):
        raise ConfigurationError(f"--node {name!r}: not a DNS-1123 label (a-z, 0-9 and -, at most 63 characters)")
    return name


def _directory(option: str, path: Path) -> Path:
    if not path.is_dir():
        raise ConfigurationError(f"--{option} {path}: not a directory")
    return path


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigurationError(f"--label {text!r}: not key=value")
    return key, value


def _command(text: str) -> tuple[str, ...]:
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigurationError(f"--snapshot-command {text!r}: {error}") from None
    if not any("{target}" in word for word in argv[1:]):
        raise ConfigurationError(f"--snapshot-command {text!r}: it has to write {{target}}")
    return argv


def _capacity(option: str, value: int | None) -> int | None:
    if value is not None and value < 0:
        raise ConfigurationError(f"--{option} {value}: less than 0")
    return value


def _port_range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= 65_535:
        raise ConfigurationError(f"--port-range {text!r}: not as in {PORT_RANGE[0]}-{PORT_RANGE[1]}")
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    typer.run(main)
