"""The fence of a volume: one user at a time, and never an epoch that is over."""

from pathlib import Path

import pytest

from services.agent.driver import DriverError
from services.agent.volumes import Volumes
from shared.model.run import RunSpec, VolumeMount

ENV = "shop/db/production"


def run(*names: str) -> RunSpec:
    return RunSpec(volumes=tuple(VolumeMount(name=name, mount_path=f"/{name}") for name in names))


def test_a_volume_is_a_directory_by_environment_and_name(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path)
    paths = volumes.paths(ENV, run("data", "wal"))
    assert paths == {"data": tmp_path / "shop/db/production/data", "wal": tmp_path / "shop/db/production/wal"}
    volumes.admit("db-1", paths, 5)
    assert all(path.is_dir() for path in paths.values())


def test_a_lower_epoch_is_refused_also_by_the_next_agent_and_by_any_one_of_the_volumes(tmp_path: Path) -> None:
    Volumes(tmp_path).admit("db-2", Volumes(tmp_path).paths(ENV, run("data")), 7)
    later = Volumes(tmp_path)
    with pytest.raises(DriverError, match="epoch 6 is over, db-2 was admitted with 7"):
        later.admit("db-1", later.paths(ENV, run("wal", "data")), 6)
    assert not later.path(ENV, "wal").exists()
    later.admit("db-3", later.paths(ENV, run("wal", "data")), 8)


def test_an_epoch_admits_one_assignment_once_or_again_but_no_other(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path)
    paths = volumes.paths(ENV, run("data"))
    volumes.admit("db-1", paths, 5)
    volumes.admit("db-1", paths, 5)
    with pytest.raises(DriverError, match="epoch 5 is over"):
        volumes.admit("db-2", paths, 5)


def test_a_volume_in_use_is_refused_until_it_is_released(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path)
    paths = volumes.paths(ENV, run("data"))
    volumes.hold("db-1", paths)
    with pytest.raises(DriverError, match="db-1 still uses it"):
        volumes.hold("db-2", paths)
    volumes.release("db-2")
    with pytest.raises(DriverError, match="db-1 still uses it"):
        volumes.hold("db-2", paths)
    volumes.release("db-1")
    volumes.hold("db-2", paths)


def test_a_fence_that_cannot_be_read_starts_nothing(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path)
    paths = volumes.paths(ENV, run("data"))
    volumes.admit("db-1", paths, 5)
    (tmp_path / ENV / "data.epoch").write_text("{")
    with pytest.raises(DriverError, match="cannot be read"):
        volumes.admit("db-2", paths, 9)


@pytest.mark.parametrize("workload", ["shop/../../etc", "/etc", "shop//production", "shop/db/.hidden", ""])
def test_a_workload_that_is_no_name_has_no_volumes(tmp_path: Path, workload: str) -> None:
    with pytest.raises(DriverError, match="is not a name"):
        Volumes(tmp_path).path(workload, "data")
