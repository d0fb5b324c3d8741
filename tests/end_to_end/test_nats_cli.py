"""Every record is readable with the ordinary `nats` program: the recipes of the README, run."""

import asyncio
import base64
import json
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from services.cli.exits import Exit
from shared import codec, subjects
from tests.end_to_end.running import SHOP, Up, up

NATS = shutil.which("nats")
WEB = "shop/web/production"

pytestmark = pytest.mark.skipif(NATS is None, reason="the nats program is not on the PATH")


async def nats(url: str, *arguments: str) -> str:
    assert NATS is not None
    process = await asyncio.create_subprocess_exec(NATS, "--server", url, *arguments, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_recipes_of_the_readme_show_what_they_say(tmp_path: Path) -> None:
    async with up(tmp_path / "data") as plane:
        await plane.steer("apply", "-f", str(SHOP / "manifests"))
        watching = await subscribed(plane)
        code, _, err = await plane.steer("deploy", WEB, "--image", "exec:v1", "--wait", "--timeout", "60")
        assert code == Exit.OK, err

        out, _ = await asyncio.wait_for(watching.communicate(), 60)
        assert out.count(b"steer.assignment.n1.web-") >= 3 and b'"desired":"run"' in out

        assert json.loads(await nats(plane.url, "kv", "get", subjects.LEASE_BUCKET, "scheduler", "--raw"))["holder"]
        services = await nats(plane.url, "micro", "ls")
        assert "scheduler" in services and "routes" in services
        await every_record_is_readable(plane)


async def subscribed(plane: Up) -> asyncio.subprocess.Process:
    """`nats sub`, which ends after three messages, once the server has it."""
    assert NATS is not None
    filter_ = subjects.ASSIGNMENT.subject("*", "*")
    process = await asyncio.create_subprocess_exec(
        *(NATS, "--server", plane.url, "sub", filter_, "--count", "3"), stdout=PIPE, stderr=PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"Subscribing" not in await process.stderr.readline():
            continue
    return process


async def every_record_is_readable(plane: Up) -> None:
    listed = json.loads(await nats(plane.url, "stream", "subjects", subjects.STREAM, "--json"))
    kinds = set()
    for subject in listed:
        kind, key = subjects.parse(subject)
        if kind in kinds:
            continue
        shown = json.loads(await nats(plane.url, "stream", "get", subjects.STREAM, "--last-for", subject, "--json"))
        if not shown.get("data"):  # a tombstone
            continue
        kinds.add(kind)
        assert codec.decode(kind, key, base64.b64decode(shown["data"]))
        assert subject in await nats(plane.url, "stream", "get", subjects.STREAM, "--last-for", subject)
    assert kinds >= {
        subjects.ENVIRONMENT,
        subjects.RELEASE,
        subjects.DEPLOY,
        subjects.DOMAIN,
        subjects.NODE,
        subjects.INSTANCE,
        subjects.ASSIGNMENT,
        subjects.DEPLOYMENT,
        subjects.ACTIVE,
        subjects.ROUTE_HOST,
        subjects.ROUTE_MANIFEST,
        subjects.TERM,
        subjects.DECISION,
    }
