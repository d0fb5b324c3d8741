"""`steer up`: a control plane that keeps itself running, and leaves nothing behind."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from services.cli.exits import Exit, Failed
from services.cli.plane import Plane, next_port
from tests.end_to_end.running import SHOP, START_SECONDS, Up, ended, started, steer, up
from tests.integration.running import eventually

WEB = "shop/web/production"
MANIFESTS = str(SHOP / "manifests")


def processes(plane: Up) -> list[psutil.Process]:
    return psutil.Process(plane.process.pid).children(recursive=True)


def process_of(plane: Up, module: str) -> int:
    return next(each.pid for each in processes(plane) if module in each.cmdline())


async def test_releases_serve_ctrl_c_ends_everything_and_the_next_start_goes_on_from_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data) as plane:
        await deploy_explain_and_roll_back(plane)
        children = processes(plane)
        assert await ended(plane.process) == Exit.OK
        assert psutil.wait_procs(children, timeout=60)[1] == []
        assert not (data / "url").exists()
    async with up(data) as plane:
        code, out, _ = await plane.steer("apply", "-f", MANIFESTS, "-o", "json")
        assert code == Exit.OK and {step["action"] for step in json.loads(out)} == {"unchanged"}


async def deploy_explain_and_roll_back(plane: Up) -> None:
    code, _, err = await plane.steer("apply", "-f", MANIFESTS, "--wait")
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


async def test_a_second_one_is_refused_what_cannot_be_placed_says_why_and_what_dies_is_started_again(
    tmp_path: Path,
) -> None:
    """Three things on one plane: each would have seven processes of its own."""
    async with up(tmp_path / "data") as plane:
        await a_second_one_is_refused(plane)
        await what_cannot_be_placed_says_why(plane, tmp_path)
        await a_service_that_dies_is_started_again(plane)


async def a_second_one_is_refused(plane: Up) -> None:
    second = await started("up", "--data", str(plane.data), data=plane.data)
    _, err = await asyncio.wait_for(second.communicate(), START_SECONDS)
    assert second.returncode == Exit.FAILED and b"another `steer up` uses this directory" in err
    assert (await plane.steer("get", "node", "n1"))[0] == Exit.OK


async def what_cannot_be_placed_says_why(plane: Up, directory: Path) -> None:
    manifest = directory / "south.yaml"
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


async def a_service_that_dies_is_started_again(plane: Up) -> None:
    killed = process_of(plane, "services.scheduler")
    os.kill(killed, signal.SIGKILL)
    assert "scheduler was ended by SIGKILL; it starts again in 0.5 s" in await plane.say()

    async def another_leads() -> bool:
        _, out, _ = await plane.steer("status", "-o", "json")
        leader = next(each for each in json.loads(out)["leaders"] if each["service"] == "scheduler")
        return leader["leads"] and f"-{killed}-" not in leader["holder"]

    await eventually(another_leads, START_SECONDS)


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port < 65_000:
            assert port < next_port(port) < port + 100


async def test_a_port_that_is_taken_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    """Whoever listens there may be another control plane, which nothing of this one must join."""
    plane = Plane(tmp_path / "data", [], print)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Failed, match="is in use"):
            await plane.start(taken.getsockname()[1])
    await plane.stop()


@pytest.mark.parametrize("label", ["region", "=north"])
async def test_a_label_without_a_value_is_a_mistake(tmp_path: Path, label: str) -> None:
    code, _, err = await steer("up", "--label", label, data=tmp_path)
    assert code == Exit.INVALID and "name=value" in err
