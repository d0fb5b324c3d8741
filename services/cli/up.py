"""`steer up`: a control plane on this machine until Ctrl-C."""

import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from services.builder.worker.template import parse
from services.cli.output import Format, Output, as_json_line, line, say
from services.cli.plane import AgentSpec, Plane
from services.cli.session import DEFAULT_DATA, Data, done_before, run_alone, told_to_stop
from shared import subjects
from shared.runtime.bus import connect


def command(
    *,
    exec_root: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Where the images exec:<dir> of the agent lie.", exists=True, file_okay=False),
    ] = Path(),
    node: Annotated[str, typer.Option(help="The name of the node; by default that of this machine.")] = "",
    label: Annotated[list[str] | None, typer.Option(help="A label of the node, as region=north.")] = None,
    build_command: Annotated[
        str, typer.Option(help="What local build workers run, names in braces; by default buildctl.")
    ] = "",
    port: Annotated[int | None, typer.Option(help="By default 4222, or the next free one.", min=1, max=65_535)] = None,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Run a NATS server, the services and one agent on this machine until Ctrl-C.

    What dies is started again. Ctrl-C stops everything, the replicas included; the next start goes on from the data.
    """
    pairs = [text.partition("=") for text in label or ()]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise typer.BadParameter("a label is name=value", param_hint="--label")
    labels = {name: value for name, _, value in pairs}
    if build_command:
        parse(build_command)  # else each worker would refuse it, again and again, in its own log
    agent = AgentSpec(node or host_name(), exec_root.resolve(), labels)
    run_alone(_up(Plane(data, [agent], lambda text: say(text, "yellow"), build_command=build_command), port, output))


def host_name() -> str:
    """The host's name as a name of ours."""
    letters = (character if character.isalnum() else "-" for character in socket.gethostname().split(".")[0].lower())
    name = "".join(letters).encode("ascii", "ignore").decode().strip("-")[:63]
    return name or "local"


async def _up(plane: Plane, port: int | None, output: Format) -> None:
    stop = told_to_stop()
    try:
        if await done_before(stop, _start(plane, port, output)):
            await stop.wait()
        say("stopping")
    finally:
        await plane.stop()


async def _start(plane: Plane, port: int | None, output: Format) -> None:
    say(f"starting in {plane.directory}")
    await plane.start(port)
    bus = await connect(plane.settings, "steer-up")
    try:
        await plane.ready(bus)
    finally:
        await bus.close()
    if output is Format.JSON:
        as_json_line({"url": plane.url, "data": str(plane.directory), "pid": os.getpid()})
        return
    for text in how_to_go_on(plane):
        line(text)


def how_to_go_on(plane: Plane) -> list[str]:
    """What to type next."""
    directory, here = plane.directory, Path.cwd()
    data = directory.relative_to(here) if directory.is_relative_to(here) else directory
    option = "" if data == DEFAULT_DATA else f" --data {data}"
    return [
        f"Steersman runs at {plane.url}; its data and logs are in {data}. Ctrl-C stops it. In another terminal:",
        f"  steer apply -f examples/shop/manifests{option}",
        f"  steer deploy shop/web/production --image exec:v1 --wait{option}",
        f"  steer status{option}",
        f"  nats --server {plane.url} sub '{subjects.ASSIGNMENT.subject_filter}'",
    ]
