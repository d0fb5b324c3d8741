"""A cluster as `steer server config --cluster --tls` writes it: three servers that know each other by certificates.

Every role is tried on it once, for what it may and may not write; then the services run on it, each with its own
identity, and lose the server that leads the log. They live on addresses of their own below 127, as three hosts would.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from services.cli.identities import cluster_password
from services.cli.security import SERVICES
from services.cli.server import SEEDS
from services.cli.server_config import CLUSTER_PORT, ROUTE_USER
from shared.runtime import bus as buses
from shared.runtime import streams, tasks
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer, free_port
from shared.runtime.jetstream import api
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from shared.subjects import KINDS, STREAM
from tests.faults.waiting import until
from tests.integration.answering import everybody_answers, publish_bad_records
from tests.integration.secured import denied, make_certificates
from tests.integration.steer_command import Steer
from tests.integration.test_permissions import ROLES, keys_of, may_write

HOSTS = {"n1": "127.0.11.1", "n2": "127.0.11.2", "n3": "127.0.11.3"}
DOERS = ("--node", "n1", "--proxy", "edge", "--worker", "default/w0", "--scaler", "default")


@dataclass(frozen=True)
class Secured:
    """What was tried: writes of all roles that were let through and refused, and the seconds without the log's leader."""

    roles: int
    allowed: int
    refused: int
    wrong: tuple[str, ...]
    over_after_seconds: float


async def secured(folder: Path) -> Secured:
    cluster = _Cluster(folder)
    try:
        return await _tried(cluster)
    finally:
        await cluster.close()


class _Cluster:
    """The servers, and connections to them as a role."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {name: free_port() for name in HOSTS}
        self._open: list[Bus] = []
        make_certificates(folder / "tls", *HOSTS, addresses=(*HOSTS.values(), "127.0.0.1"))
        named = [each for name, host in HOSTS.items() for each in ("--cluster", f"{name}={host}")]
        made = Steer(self.url, folder).run("server", "config", "--out", str(folder), "--tls", *named, *DOERS)
        assert made.code == 0, made.err
        login = f"{ROUTE_USER}:{cluster_password(folder / SEEDS)}"
        self.servers = {
            name: EmbeddedServer(
                config=folder / f"{name}.conf", arguments=("--cluster", f"nats://{login}@{host}:{CLUSTER_PORT}")
            )
            for name, host in HOSTS.items()
        }
        for name in HOSTS:
            self.start(name)

    @property
    def url(self) -> str:
        return ",".join(f"tls://127.0.0.1:{port}" for port in self._ports.values())

    def start(self, name: str) -> None:
        self.servers[name].start(self._folder / f"jetstream-{name}", self._ports[name])

    def settings(self, role: str) -> Settings:
        seed, ca = self._folder / SEEDS / f"{role}.nk", self._folder / "tls" / "ca.pem"
        return Settings(nats_url=self.url, nats_nkey=str(seed), tls_ca=str(ca), replicas=3)

    async def bus(self, role: str) -> Bus:
        self._open.append(await buses.connect(self.settings(role), role.replace(".", "-"), patience=30))
        return self._open[-1]

    async def close(self) -> None:
        for bus in self._open:
            await bus.close()
        for server in self.servers.values():
            server.kill()


async def _tried(cluster: _Cluster) -> Secured:
    operator, user = await cluster.bus("operator"), await cluster.bus("user")

    async def made() -> bool:
        await streams.ensure(operator)
        return True

    await until(made, "the operator makes the streams")
    keys = [(kind, key) for kind in KINDS for key in keys_of(kind)]
    rules = {role: {kind.subject(*key): may_write(role, kind, key) for kind, key in keys} for role in ROLES}
    wrong = []
    for role, allowed in rules.items():
        refused = await denied(await cluster.bus(role), tuple(allowed))
        wrong += [f"{role}: {subject}" for subject, may in allowed.items() if may == (subject in refused)]
    verdicts = [may for allowed in rules.values() for may in allowed.values()]
    return Secured(
        len(ROLES), sum(verdicts), len(verdicts) - sum(verdicts), tuple(wrong), await _leader_lost(cluster, user)
    )


async def _leader_lost(cluster: _Cluster, user: Bus) -> float:
    """Until every service commits again after the log's leader was killed."""
    stop = asyncio.Event()
    running = [asyncio.create_task(serve(each, cluster.settings(each.name), stop=stop)) for each in SERVICES]
    try:
        await _everybody_commits(user, "before")
        leader = (await api(user, f"STREAM.INFO.{STREAM}"))["cluster"]["leader"]
        began = monotonic()
        cluster.servers[leader].kill()
        await _everybody_commits(user, "after")
        seconds = monotonic() - began
        cluster.start(leader)
        return seconds
    finally:
        stop.set()
        await asyncio.wait(running, timeout=20)
        await tasks.end(*running)


async def _everybody_commits(user: Bus, name: str) -> None:
    async def published() -> bool:
        await publish_bad_records(user, name)
        return True

    async def answered() -> bool:
        await everybody_answers(user, name)
        return True

    await until(published, "the log takes writes")
    await until(answered, "every service answers")
