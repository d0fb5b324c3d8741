"""compose.yaml and the Dockerfile, without a container engine.

What every container must be is checked in the file; then each of its commands runs as a process of this machine, with
the names and ports of the containers put in terms of this machine, and each health check has to come to say yes.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.cli.leaders import DECIDERS, leaders
from services.cli.supervisor import tail
from shared.runtime.bus import connect
from shared.runtime.embedded import free_port
from shared.runtime.settings import Settings
from tests.end_to_end.edge import answers, until

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NATS = ("nats-1", "nats-2", "nats-3")
DOERS = ("agent", "activator", "bridge")
PROXY = "proxy"
HEALTHY_SECONDS = 180
CHECK_SECONDS = 0.5


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_rights_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", service["user"])
    assert service["read_only"] is True and service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_says_whether_it_is_healthy(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD" and check["retries"] > 0


def test_there_are_three_servers_and_two_instances_of_each_service_that_decides() -> None:
    assert set(SERVICES) == {*NATS, *DECIDERS, *DOERS, PROXY}
    for name in DECIDERS:
        assert SERVICES[name]["deploy"]["replicas"] == 2
    for name in (*DECIDERS, *DOERS):
        assert SERVICES[name]["environment"]["STEER_REPLICAS"] == "3"
        assert set(SERVICES[name]["depends_on"]) == set(NATS)


def test_what_is_kept_is_kept_in_a_volume_of_its_own() -> None:
    mounts = {name: service["volumes"] for name, service in SERVICES.items() if "volumes" in service}
    assert mounts.pop("bridge") == mounts[PROXY], "a bridge and its proxy share the socket and the slots"
    assert sorted(mount.split(":")[0] for each in mounts.values() for mount in each) == sorted(COMPOSE["volumes"])


def test_no_port_is_open_beyond_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_is_written_in_the_file_or_the_image() -> None:
    for name in ("compose.yaml", "Dockerfile"):
        assert not re.search(r"(?i)password|secret|token|_nkey|_creds|api_key", (ROOT / name).read_text())


def test_the_image_runs_as_a_number_that_is_not_root_and_holds_what_it_copies() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == [SERVICES["scheduler"]["user"]]
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["python:3.11-slim"] * 2
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all((ROOT / name).exists() for names in copied for name in names)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{name}" in ignored for names in copied for name in names)


@dataclass(frozen=True)
class Here:
    """The containers' names and ports in terms of this machine."""

    directory: Path
    client: dict[str, int]
    cluster: dict[str, int]
    monitor: dict[str, int]
    activator: int
    http: int
    internal: int

    def command(self, name: str, words: list[str]) -> list[str]:
        """A command of a container, with its program from this environment."""
        program, *rest = (self._word(name, word) for word in words)
        return [str(Path(sys.executable).with_name(program)) if program != "python" else sys.executable, *rest]

    def _word(self, name: str, word: str) -> str:
        for other in NATS:
            word = word.replace(f"{other}:6222", f"127.0.0.1:{self.cluster[other]}")
            word = word.replace(f"{other}:4222", f"127.0.0.1:{self.client[other]}")
        if name in NATS:
            word = re.sub(r"\b0\.0\.0\.0:6222\b", f"127.0.0.1:{self.cluster[name]}", word)
            word = re.sub(r"\b4222\b", str(self.client[name]), word)
            word = re.sub(r"\b8222\b", str(self.monitor[name]), word).replace("0.0.0.0", "127.0.0.1")
        word = re.sub(r"\b(0\.0\.0\.0|activator):8081\b", f"127.0.0.1:{self.activator}", word)
        word = word.replace("0.0.0.0:8080", f"127.0.0.1:{self.http}").replace(
            "0.0.0.0:7000", f"127.0.0.1:{self.internal}"
        )
        word = re.sub(r"^(unix/)?/(edge|tmp)\b", rf"\g<1>{self.directory}/\g<2>", word)
        return str(self.directory / name) if word == "/data" else word

    def environment(self, name: str, metrics_port: int) -> dict[str, str]:
        variables = {key: self._word(name, value) for key, value in SERVICES[name].get("environment", {}).items()}
        if "STEER_METRICS_PORT" in variables:
            variables["STEER_METRICS_PORT"] = str(metrics_port)
        return {key: value for key, value in os.environ.items() if not key.startswith("STEER_")} | variables


@asynccontextmanager
async def process(command: list[str], environment: dict[str, str], log: Path) -> AsyncIterator[None]:
    with log.open("ab") as output:
        child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        if child.returncode is None:
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), 60)
        except TimeoutError:
            child.kill()
            await child.wait()


async def healthy(command: list[str], environment: dict[str, str], log: Path) -> None:
    """Run a health check until it says yes."""
    reason = b""
    try:
        async with asyncio.timeout(HEALTHY_SECONDS):
            while True:
                check = await asyncio.create_subprocess_exec(
                    *command, cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
                )
                _, reason = await check.communicate()
                if check.returncode == 0:
                    return
                await asyncio.sleep(CHECK_SECONDS)
    except TimeoutError:
        pytest.fail(f"{' '.join(command)}: {reason.decode()}\n{log}: {'; '.join(tail(log))}")


@asynccontextmanager
async def container(here: Here, name: str) -> AsyncIterator[None]:
    """A service of compose.yaml, once it is healthy."""
    service, log = SERVICES[name], here.directory / f"{name}.log"
    environment = here.environment(name, free_port())
    async with process(here.command(name, service["command"]), environment, log):
        await healthy(here.command(name, service["healthcheck"]["test"][1:]), environment, log)
        yield


async def test_every_command_runs_and_every_health_check_comes_to_say_yes(tmp_path: Path) -> None:
    client, cluster, monitor = ({name: free_port() for name in NATS} for _ in range(3))
    here = Here(tmp_path, client, cluster, monitor, free_port(), free_port(), free_port())
    (tmp_path / "edge").mkdir()
    async with AsyncExitStack() as stack:
        for names in (NATS, (*DECIDERS, *DOERS, PROXY)):
            await asyncio.gather(*(stack.enter_async_context(container(here, name)) for name in names))
        url = here.environment("scheduler", 0)["STEER_NATS_URL"]
        bus = await connect(Settings(nats_url=url, replicas=3), "test", patience=60)
        stack.push_async_callback(bus.close)
        async with asyncio.timeout(HEALTHY_SECONDS):
            while not all(leader.holds_lease for leader in await leaders(bus)):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.2)
        for port in (here.http, here.internal):
            await until(partial(answers, port, "nobody.example.com", 404), HEALTHY_SECONDS)
