"""A server as `steer server config` sets it up: nkeys, roles, TLS with certificates that end with the test."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.cli.identities import seed_file
from services.cli.server import SEEDS
from shared.runtime import bus as buses
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer, free_port
from shared.runtime.settings import Settings
from tests.integration.running import eventually
from tests.integration.steer_command import Result, Steer

DENIED = "this identity may not "
LAST = "nobody.may.publish.here"
"""The server answers in order: once this is refused, so is what was tried before it."""


class Secured:
    """`bus` and `steer` act as a role; `port` is where the server listens once it was started."""

    def __init__(self, directory: Path, *, tls: bool = False) -> None:
        self.directory = directory
        self.tls = tls
        self.port = free_port()
        self._buses: list[Bus] = []
        self.server = EmbeddedServer(config=directory / "nats-server.conf")
        if tls:
            make_certificates(directory / "tls", "nats-server")

    def configure(self, *options: str) -> None:
        steer = Steer(self.url, self.directory)
        arguments = ("server", "config", "--out", str(self.directory), *(["--tls"] if self.tls else []), *options)
        result = steer.run(*arguments)
        assert result.code == 0, result.err

    def start(self) -> None:
        self.server.start(self.directory / "store", self.port)

    async def stop(self) -> None:
        for bus in self._buses:
            await bus.close()
        self.server.stop()

    @property
    def url(self) -> str:
        return f"{'tls' if self.tls else 'nats'}://127.0.0.1:{self.port}"

    def settings(self, role: str, **changes: Any) -> Settings:
        seed = str(seed_file(self.directory / SEEDS, role))
        ca = str(self.directory / "tls" / "ca.pem") if self.tls else ""
        return Settings(**({"nats_url": self.url, "nats_nkey": seed, "tls_ca": ca} | changes))

    async def bus(self, role: str, **changes: Any) -> Bus:
        """A connection; it ends with the server."""
        self._buses.append(await buses.connect(self.settings(role, **changes), role.replace(".", "-"), patience=60))
        return self._buses[-1]

    async def steer(self, role: str, *arguments: str, stdin: str = "") -> Result:
        settings = self.settings(role)
        command = Steer(self.url, self.directory / "data")
        command.variables |= {"STEER_NATS_NKEY": settings.nats_nkey}
        if settings.tls_ca:
            command.variables["STEER_TLS_CA"] = settings.tls_ca
        return await command(*arguments, stdin=stdin)


async def denied(bus: Bus, publish: tuple[str, ...] = (), subscribe: tuple[str, ...] = ()) -> set[str]:
    """Which of these the server refuses: each is tried, with an empty body."""
    with capture_logs() as logs:
        for subject in subscribe:
            await bus.nc.subscribe(subject)
        for subject in (*publish, LAST):
            await bus.nc.publish(subject)
        await eventually(lambda: any(LAST in event["event"] for event in logs))
    refused = {event["event"].rsplit(" ", 1)[1] for event in logs if event["event"].startswith(DENIED)}
    return {subject for subject in (*publish, *subscribe) if subject.lower() in refused}


def make_certificates(directory: Path, *names: str, addresses: tuple[str, ...] = ("127.0.0.1",)) -> None:
    """An authority, and a certificate of it for each name, which is good for every one of the addresses."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not there")
    directory.mkdir(parents=True)
    new = (openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    alternative = "subjectAltName=" + ",".join(f"IP:{address}" for address in addresses)
    signed = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-addext", alternative, "-addext", "basicConstraints=CA:FALSE")
    wanted: list[tuple[str, ...]] = [("-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=authority")]
    wanted += [("-keyout", f"{each}-key.pem", "-out", f"{each}.pem", "-subj", f"/CN={each}", *signed) for each in names]
    for arguments in wanted:
        subprocess.run((*new, *arguments), cwd=directory, check=True, capture_output=True)
