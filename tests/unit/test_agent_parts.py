"""The small parts of the agent: paths, ports, environment, journal, clock, node, options."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from services.agent import __main__ as program
from services.agent import node
from services.agent.clock import ServerClock
from services.agent.config import AgentConfig
from services.agent.confine import Escape, below
from services.agent.driver import DriverError, Launch
from services.agent.exec_driver import ExecDriver
from services.agent.heartbeat import DEFAULT_INTERVAL_SECONDS, Heartbeat
from services.agent.host_ports import HostPorts
from services.agent.journal import Entry, Journal
from services.agent.processes import describe
from shared.errors import ConfigurationError
from shared.model.node import Fleet
from shared.model.run import PortSpec, RunSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def config(tmp_path: Path, **changes: object) -> AgentConfig:
    (tmp_path / "apps" / "shop").mkdir(parents=True, exist_ok=True)
    values: dict[str, object] = {"node": "n1", "data_dir": tmp_path / "data", "exec_root": tmp_path / "apps"}
    return AgentConfig(**(values | changes))  # type: ignore[arg-type]


def launch(**run: object) -> Launch:
    return Launch("a-1", "shop/web/production", RunSpec(**{"image": "exec:shop", "command": ("true",), **run}))  # type: ignore[arg-type]


def test_a_directory_below_the_root_is_found_and_nothing_means_the_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert below(tmp_path, "a/b") == (tmp_path / "a" / "b").resolve()
    assert below(tmp_path, "") == tmp_path.resolve()
    assert below(tmp_path, "a/../a") == (tmp_path / "a").resolve()


@pytest.mark.parametrize(
    "name", ["..", "../other", "a/../../other", "/etc", "link", "link/deep", "gone", "a\0b", "loop"]
)
def test_a_name_that_leads_out_of_the_root_or_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "other")
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(Escape):
        below(root, name)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({"image": "docker.io/shop"}, "is not exec:<directory>"),
        ({"image": "exec:../data"}, "leads out"),
        ({"image": "exec:/etc"}, "is absolute"),
        ({"image": "exec:missing"}, "missing"),
        ({"command": ()}, "no command"),
        ({"command": ("no-such-program-anywhere",)}, "not on the PATH"),
        ({"command": ("./missing",)}, "cannot run './missing'"),
        ({"env_from": ("secrets",)}, "--env-dir"),
    ],
)
async def test_what_cannot_be_started_says_why(tmp_path: Path, run: dict[str, object], reason: str) -> None:
    with pytest.raises(DriverError, match=reason):
        await ExecDriver(config(tmp_path)).start(launch(**run), {})


@pytest.mark.parametrize("name", ["../outside", "missing", "broken", "binary"])
async def test_a_file_of_variables_must_lie_in_its_directory_and_be_readable(tmp_path: Path, name: str) -> None:
    files = tmp_path / "env"
    files.mkdir()
    (tmp_path / "outside").write_text("A=1")
    (files / "broken").write_text("no equals sign")
    (files / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(DriverError, match=f"env_from '{name}'"):
        await ExecDriver(config(tmp_path, env_dir=files)).start(launch(env_from=(name,)), {})


def test_ports_are_free_distinct_and_given_back() -> None:
    ports = HostPorts(20_000, 32_767)
    specs = [PortSpec(name="http", container_port=80), PortSpec(name="dns", container_port=53, protocol="udp")]
    first, second = ports.take(specs), ports.take(specs)
    assert set(first) == {"http", "dns"}
    assert len({*first.values(), *second.values()}) == 4


def test_a_range_without_a_free_port_is_refused_with_the_name_of_the_port() -> None:
    ports = HostPorts(20_123, 20_123)
    ports.reserve({"other": 20_123})
    with pytest.raises(DriverError, match="'http' found between 20123 and 20123"):
        ports.take([PortSpec(name="http", container_port=80)])


def test_the_journal_gives_back_what_was_written_until_it_is_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = Entry(
        assignment="a-1", sequence=7, workload="shop/web/production", run=RunSpec(env={"A": "1"}), config_hash="x",
        ports={"http": 20_000}, pid=1, process_started_at=1.5, state="healthy", since=NOW, healthy_since=NOW,
    )  # fmt: skip
    journal.write(entry)
    assert journal.load() == [entry]
    assert (tmp_path / "a-1.json").stat().st_mode & 0o077 == 0
    journal.remove("a-1")
    journal.remove("a-1")
    assert journal.load() == []


def test_an_unreadable_file_of_the_journal_does_not_hide_the_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = Entry(assignment="a-1", sequence=7, workload="w", run=RunSpec(), config_hash="x", since=NOW)
    journal.write(entry)
    (tmp_path / "a-0.json").write_text('{"assignment": ')
    assert journal.load() == [entry]


def test_the_servers_clock_runs_on_the_monotonic_one_and_never_back() -> None:
    seconds = [100.0]
    clock = ServerClock(lambda: seconds[0])
    clock.hear(NOW)
    seconds[0] += 5
    assert clock.now() == NOW + timedelta(seconds=5)
    clock.hear(NOW + timedelta(seconds=1))
    assert clock.now() == NOW + timedelta(seconds=5)
    clock.hear(NOW + timedelta(seconds=60))
    assert clock.now() == NOW + timedelta(seconds=60)


def test_the_capacity_is_detected_unless_it_is_given(tmp_path: Path) -> None:
    found = node.describe(config(tmp_path, labels={"region": "eu"}), ("exec",))
    assert found.capacity.cpu_millis == (psutil.cpu_count() or 1) * 1000
    assert found.capacity.memory_mb == psutil.virtual_memory().total // 1024**2
    assert found.labels == {"region": "eu"}
    assert found.platform == node.detected_platform()
    given = node.describe(
        config(tmp_path, capacity_cpu_millis=0, capacity_memory_mb=512, platform="linux/riscv64"), ("exec",)
    )
    assert (given.capacity.cpu_millis, given.capacity.memory_mb, given.platform) == (0, 512, "linux/riscv64")


def test_the_interval_of_the_heartbeat_is_that_of_the_fleet() -> None:
    heartbeat = Heartbeat("n1", dict)
    assert heartbeat.interval_seconds == 2
    heartbeat.set_fleet(Fleet(heartbeat_interval_seconds=20))
    assert heartbeat.interval_seconds == 20
    heartbeat.set_fleet(None)
    assert heartbeat.interval_seconds == DEFAULT_INTERVAL_SECONDS


@pytest.mark.parametrize(
    ("code", "message"),
    [(0, "exited with code 0"), (3, "exited with code 3"), (137, "ended by SIGKILL"), (None, "unknown")],
)
def test_an_exit_is_told_in_words(code: int | None, message: str) -> None:
    assert message in describe(code).message
    assert describe(code).code == code


@pytest.mark.parametrize("text", ["region", "=eu", ""])
def test_a_label_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not key=value"):
        program._label(text)


@pytest.mark.parametrize("text", ["1", "9-1", "0-5", "1-70000", "a-b"])
def test_a_range_of_ports_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--port-range"):
        program._port_range(text)


def test_a_node_is_named_after_its_host_and_refused_where_that_is_no_name() -> None:
    assert program._node("n-1") == "n-1"
    with pytest.raises(ConfigurationError, match="DNS-1123"):
        program._node("Not.A.Name")
