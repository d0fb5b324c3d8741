"""`steer up`: a control plane that keeps itself running, and leaves nothing behind."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from services.cli.exits import Exit
from services.cli.plane import next_port
from tests.end_to_end.running import ended, up
from tests.end_to_end.test_shop import until

WEB = "shop/web/production"


def children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def child(pid: int, module: str) -> int:
    return next(each.pid for each in children(pid) if module in each.cmdline())


async def test_a_release_is_deployed_explained_rolled_back_and_everything_ends_with_ctrl_c(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data) as plane:
        code, _, err = await plane.steer("apply", "-f", "examples/shop/manifests", "--wait")
        assert code == Exit.OK, err
        for image in ("exec:v1", "exec:v2"):
            code, out, err = await plane.steer("deploy", WEB, "--image", image, "--wait", "--timeout", "60")
            assert code == Exit.OK, err
        assert out == f"{WEB}: version 2 serves\n" and "healthchecking" in err
        code, out, err = await plane.steer("rollback", WEB, "--wait", "--timeout", "60")
        assert (code, out) == (Exit.OK, f"{WEB}: version 1 serves\n"), err

        _, out, _ = await plane.steer("status", "-o", "json")
        status = json.loads(out)
        assert all(leader["leads"] for leader in status["leaders"])
        web = next(each for each in status["environments"] if each["name"] == WEB)
        assert (web["version"], web["desired"], web["healthy"]) == ("1", 3, 3)

        _, out, _ = await plane.steer("get", "assignment", "-o", "json")
        for name in (WEB, json.loads(out)[0]["name"], "n1"):
            code, out, err = await plane.steer("explain", name)
            assert code == Exit.OK and "decided at sequence" in out, err

        started = children(plane.process.pid)
        assert await ended(plane.process) == Exit.OK
        assert psutil.wait_procs(started, timeout=10)[1] == []
        assert not (data / "url").exists()


async def test_what_cannot_be_placed_says_why(tmp_path: Path) -> None:
    async with up(tmp_path / "data") as plane:
        manifest = tmp_path / "big.yaml"
        manifest.write_text(
            f"kind: Environment\nname: {WEB}\nservice:\n"
            "  placement: {constraints: {region: south}}\n  run: {command: [python3, web.py]}\n"
        )
        await plane.steer("apply", "-f", str(manifest))
        code, _, err = await plane.steer("deploy", WEB, "--image", "exec:v1", "--wait", "--timeout", "2")
        assert code == Exit.TIMED_OUT and "is still placing" in err
        _, out, _ = await plane.steer("status", "-o", "json")
        (pending,) = json.loads(out)["pending"]
        assert pending["name"].startswith(WEB)
        assert pending["reasons"]["rejected"] == {"labels": 1}
        assert "labels" in (await plane.steer("status"))[1]


async def test_a_service_that_dies_is_started_again_and_leads_again(tmp_path: Path) -> None:
    async with up(tmp_path / "data") as plane:
        killed = child(plane.process.pid, "services.scheduler")
        os.kill(killed, signal.SIGKILL)
        assert "scheduler was ended by SIGKILL; it starts again in 0.5 s" in await plane.say()

        async def leads() -> bool:
            _, out, _ = await plane.steer("status", "-o", "json")
            return all(leader["leads"] for leader in json.loads(out)["leaders"])

        await until(leads)
        assert child(plane.process.pid, "services.scheduler") != killed


async def test_a_second_one_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data) as plane:
        code, _, err = await plane.steer("up", "--data", str(data))
        assert code == Exit.FAILED and "another `steer up` uses this directory" in err
        assert (await plane.steer("get", "node", "n1"))[0] == Exit.OK


async def test_the_next_start_goes_on_from_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data) as plane:
        await plane.steer("apply", "-f", "examples/shop/manifests")
    async with up(data) as plane:
        code, out, _ = await plane.steer("apply", "-f", "examples/shop/manifests", "-o", "json")
        assert code == Exit.OK and {step["action"] for step in json.loads(out)} == {"unchanged"}


def test_a_port_that_is_taken_is_passed_over() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port < 65_000:
            assert port < next_port(port) < port + 100


@pytest.mark.parametrize("label", ["region", "=north"])
async def test_a_label_without_a_value_is_a_mistake(tmp_path: Path, label: str) -> None:
    from tests.end_to_end.running import steer

    code, _, err = await steer("up", "--label", label, data=tmp_path)
    assert code == Exit.INVALID and "name=value" in err
