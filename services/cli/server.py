"""`steer server`: a NATS server that lets each identity do what it has to, and the streams on it."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.exits import Refused
from services.cli.identities import cluster_password, identities, seed_file, write_secret
from services.cli.output import Format, Output, as_json, line
from services.cli.security import PEOPLE, SERVICES
from services.cli.server_config import Cluster, Tls, server_config
from services.cli.session import DEFAULT_DATA, Data, run
from shared.runtime import streams
from shared.runtime.bus import Bus

EVERYBODY = (*(service.name for service in SERVICES), "sweeper", *PEOPLE)
SEEDS = "seeds"

server = typer.Typer(help="Set up a NATS server for Steersman.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the configuration and the seeds are written.")]
Names = list[str] | None


@server.command("config")
def config(
    *,
    out: Out,
    node: Annotated[Names, typer.Option(help="A node with an agent; may be repeated, as all of these.")] = None,
    proxy: Annotated[Names, typer.Option(help="A proxy, by its name.")] = None,
    worker: Annotated[Names, typer.Option(metavar="POOL/NAME", help="A build worker.")] = None,
    scaler: Annotated[
        Names, typer.Option(metavar="POOL", help="A scaler of a pool, with the workers it starts.")
    ] = None,
    cluster: Annotated[Names, typer.Option(metavar="NAME=HOST", help="One of three or five servers.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="With the certificates in DIR/tls.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Write the configuration of a nats-server, and an nkey seed for each identity.

    Every identity may do what its process does, and nothing else. Seeds that are there stay as they are, so it is run
    again to add a node. A process uses its seed by STEER_NATS_NKEY. With --tls, each server wants DIR/tls/ca.pem,
    DIR/tls/<server>.pem and DIR/tls/<server>-key.pem, and each process STEER_TLS_CA.
    """
    directory = out.resolve()
    hosts = _hosts(cluster or [])
    wanted = [
        *EVERYBODY,
        *(f"agent.{each}" for each in node or ()),
        *(f"proxy.{each}" for each in proxy or ()),
        *(f"worker.{each.replace('/', '.')}" for each in worker or ()),
        *(f"scaler.{each}" for each in scaler or ()),
    ]
    seeds = directory / SEEDS
    users = identities(seeds, wanted)
    together = Cluster(hosts, cluster_password(seeds)) if hosts else None
    files = []
    for name in hosts or ["nats-server"]:
        certificates = _certificates(directory / "tls", name) if tls else None
        text = server_config(name, users, str(directory / f"jetstream-{name}"), tls=certificates, cluster=together)
        files.append(directory / f"{name}.conf")
        write_secret(files[-1], text.encode())
    keys = [{"name": role.name, "seed": str(seed_file(seeds, role.name)), "key": key} for role, key in users]
    if output is Format.JSON:
        as_json({"configurations": [str(file) for file in files], "identities": keys})
        return
    for file in files:
        line(f"nats-server -c {file}")
    line(f"{len(users)} identities, their seeds in {seeds}: STEER_NATS_NKEY={seeds}/<identity>.nk")
    line(f"then, once: STEER_NATS_NKEY={seed_file(seeds, 'operator')} steer server streams")


@server.command("streams")
def make_streams(*, data: Data = DEFAULT_DATA, output: Output = Format.TEXT) -> None:
    """Make the streams, or complete them after an upgrade: with the identity of an operator.

    STEER_REPLICAS says how many copies each has. Services find the streams made; without restrictions they make them.
    """

    async def work(bus: Bus) -> None:
        await streams.ensure(bus)

    run(work, data)
    names = [str(each["name"]) for each in streams.DECLARATIONS]
    if output is Format.JSON:
        as_json({"streams": names})
    else:
        line(f"there are {', '.join(names)}")


def _hosts(texts: list[str]) -> dict[str, str]:
    hosts: dict[str, str] = {}
    for text in texts:
        name, equals, host = text.partition("=")
        if not equals or not name or not host or name in hosts:
            raise Refused(f"--cluster {text!r}: not NAME=HOST, or a name that is there twice")
        hosts[name] = host
    if texts and len(hosts) not in (3, 5):
        raise Refused(f"--cluster names {len(hosts)} servers; three or five can outvote one that is lost")
    return hosts


def _certificates(directory: Path, name: str) -> Tls:
    """Raises `Refused` where one is missing: the server would not start."""
    paths = (directory / "ca.pem", directory / f"{name}.pem", directory / f"{name}-key.pem")
    missing = [f"{path}: there is no such file" for path in paths if not path.is_file()]
    if missing:
        raise Refused(*missing)
    return Tls(*map(str, paths))
