"""Roles are derived, seeds are secret, and what the simulated world does its roles may do."""

import re
import stat
import subprocess
from pathlib import Path

import pytest

from services.agent import reads
from services.cli.exits import Refused
from services.cli.identities import cluster_password, identities, seed_file, write_secret
from services.cli.security import SERVICES, role_of
from services.cli.server import _certificates, _hosts
from services.cli.server_config import Cluster, Tls, server_config
from shared.errors import ConfigurationError
from shared.runtime import encode
from shared.runtime.embedded import binary
from shared.subjects import Owner
from tests.simulation.world import World

NAMES = ("scheduler", "agent.n1", "worker.default.w0", "viewer")


def matches(pattern: str, subject: str) -> bool:
    """Whether a filter of NATS takes a subject."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, given = wanted[:-1], given[: len(wanted) - 1] if len(given) >= len(wanted) else []
    return len(wanted) == len(given) and all(w in ("*", g) for w, g in zip(wanted, given, strict=True))


def test_what_a_simulated_world_writes_its_roles_may_write() -> None:
    world = World(3)
    world.run()
    writers = set()
    for stored in world.log.messages():
        writer = stored.headers.get(encode.SERVICE, "")
        if not writer and stored.kind is not None and stored.kind.owner is Owner.AGENT:
            writer = f"agent.{stored.key[0]}"
        if writer:
            writers.add(writer.partition(".")[0])
            assert any(matches(each, stored.subject) for each in role_of(writer).publish), (writer, stored.subject)
    assert writers >= {"scheduler", "routes", "agent"}


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_no_two_services_own_the_same_kind(service: object) -> None:
    owned = [kind for each in SERVICES if each is not service for kind in each.owns]
    assert not set(owned) & {kind for each in SERVICES if each is service for kind in each.owns}


def test_an_agent_may_create_consumers_for_what_it_follows_and_no_others() -> None:
    created = [each for each in role_of("agent.n1").publish if ".CONSUMER." in each]
    assert created == [f"$JS.API.CONSUMER.CREATE.STEER.*.{each}" for each in reads.all_of("n1")]
    assert all(each.endswith(("n1.*", "n1.>", "fleet")) for each in created)


@pytest.mark.parametrize(
    "name", ["agent", "agent.", "agent.N1", "agent.a.b", "nobody", "worker.p", "user.x.y", "", "a.*"]
)
def test_a_name_that_is_no_role_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        role_of(name)


def test_seeds_are_their_owners_alone_and_stay_when_an_identity_is_added(tmp_path: Path) -> None:
    first = identities(tmp_path / "seeds", NAMES)
    second = identities(tmp_path / "seeds", ["agent.n2"])
    assert {role.name for role, _ in second} == {*NAMES, "agent.n2"}
    assert {(role.name, key) for role, key in first} < {(role.name, key) for role, key in second}
    assert len({key for _, key in second}) == 5
    for role, key in second:
        path = seed_file(tmp_path / "seeds", role.name)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_bytes().startswith(b"SU") and key.startswith("U")
    assert cluster_password(tmp_path / "seeds") == cluster_password(tmp_path / "seeds")


def test_a_configuration_holds_public_keys_and_no_seed(tmp_path: Path) -> None:
    users = identities(tmp_path, NAMES)
    text = server_config("nats-server", users, "store")
    assert all(key in text for _, key in users)
    assert not re.search(r"\bSU[A-Z2-7]{20}", text)
    write_secret(tmp_path / "nats-server.conf", text.encode())
    write_secret(tmp_path / "nats-server.conf", text.encode())
    assert stat.S_IMODE((tmp_path / "nats-server.conf").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["n1", "n2", "n3"])
def test_the_server_takes_the_configuration_of_a_cluster(tmp_path: Path, name: str) -> None:
    cluster = Cluster({"n1": "host1", "n2": "host2", "n3": "host3"}, cluster_password(tmp_path))
    text = server_config(name, identities(tmp_path, NAMES), str(tmp_path / "store"), cluster=cluster)
    assert text.count("nats-route://") == 2
    path = tmp_path / f"{name}.conf"
    path.write_text(text)
    subprocess.run((binary(), "-t", "-c", str(path)), check=True, capture_output=True)
    assert "verify" in server_config(name, [], "store", cluster=cluster, tls=Tls("ca", "cert", "key"))


@pytest.mark.parametrize(
    "texts", [["a=b"], ["a", "b=c", "d=e"], ["a=b", "a=c", "d=e"], ["a=", "b=c", "d=e"], ["a=1", "b=2", "c=3", "d=4"]]
)
def test_a_cluster_that_cannot_outvote_a_loss_is_refused(texts: list[str]) -> None:
    with pytest.raises(Refused):
        _hosts(texts)


def test_certificates_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"n1-key\.pem"):
        _certificates(tmp_path, "n1")
