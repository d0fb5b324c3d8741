"""`python -m services.builder.worker`: one build worker. Each option is also a variable `STEER_WORKER_<OPTION>`.

How to reach the bus is told by the environment alone (`STEER_NATS_URL` and its kin), as for every process. SIGTERM lets
it finish what it builds; a second one cancels that.
Exit codes: 0 stopped, 1 the connection to the bus is gone for good, 2 a setting cannot be used.
"""

import asyncio
import re
import signal
import socket
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from services.builder.worker.template import BUILDCTL, parse
from services.builder.worker.worker import Worker, WorkerConfig
from shared.errors import ConfigurationError
from shared.model.base import NAME_PATTERN
from shared.runtime import logs
from shared.runtime.process import connected, run, starting
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)


def _option(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, envvar=f"STEER_WORKER_{name.upper().replace('-', '_')}")


def main(
    *,
    data: Annotated[Path, _option("data", "Where a build finds a directory of its own while it runs.")],
    pool: Annotated[str, _option("pool", "The pool it belongs to.")] = "default",
    name: Annotated[str, _option("name", "Its name; by default that of the host, as a StatefulSet gives it.")] = "",
    ordinal: Annotated[
        int | None, _option("ordinal", "Its place in the pool; by default the number at the end.")
    ] = None,
    command: Annotated[str, _option("command", "The command that builds, names in braces.")] = BUILDCTL,
    address: Annotated[str, _option("address", "Where its buildkitd listens, as tcp://host:1234.")] = "",
    node: Annotated[str, _option("node", "The node it runs on.")] = "",
    heartbeat_seconds: Annotated[float, _option("heartbeat-seconds", "A heartbeat at least this often.")] = 10.0,
    drain_seconds: Annotated[
        float, _option("drain-seconds", "How long the last build may take when it is ended.")
    ] = 600,
) -> None:
    """Run the builds that this worker gets."""
    with starting():
        given = _name("name", name or socket.gethostname().partition(".")[0].lower())
        config = WorkerConfig(
            pool=_name("pool", pool),
            name=given,
            ordinal=_ordinal(given, ordinal),
            command=parse(command),
            directory=data.resolve(),
            address=address,
            node=node,
            heartbeat_seconds=_positive("heartbeat-seconds", heartbeat_seconds),
            drain_seconds=drain_seconds,
        )
        settings = Settings.from_environment()
    logs.configure(settings, service="worker", worker=config.name)
    run(lambda stop: work(settings, config, stop))


async def work(settings: Settings, config: WorkerConfig, stop: asyncio.Event) -> None:
    """One worker until `stop`; a signal that comes when it is set already ends it at once."""
    this = asyncio.current_task()
    assert this is not None

    def end() -> None:
        if stop.is_set():
            this.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    async with connected(settings, f"worker-{config.pool}-{config.name}", stop) as bus:
        if bus is None:
            return
        try:
            await Worker(config, bus).run(stop)
        except asyncio.CancelledError:
            log.warning("ended at once", worker=config.name)


def _name(option: str, text: str) -> str:
    if not re.fullmatch(NAME_PATTERN[1:-1], text):
        raise ConfigurationError(f"--{option} {text!r}: not a DNS-1123 label (a-z, 0-9 and -, at most 63 characters)")
    return text


def _ordinal(name: str, given: int | None) -> int:
    match = re.fullmatch(r".*-([0-9]{1,6})", name)
    if given is None and match is None:
        raise ConfigurationError(
            f"--ordinal is missing: the name {name!r} does not end with a number, as builder-0 does"
        )
    if given is not None and (given < 0 or (match is not None and int(match[1]) != given)):
        raise ConfigurationError(f"--ordinal {given}: negative, or not the number at the end of the name {name!r}")
    return given if given is not None else int(match[1]) if match is not None else 0


def _positive(option: str, value: float) -> float:
    if not 0 < value <= 3600:
        raise ConfigurationError(f"--{option} {value:g}: not above 0 and at most 3600")
    return value


if __name__ == "__main__":
    typer.run(main)
