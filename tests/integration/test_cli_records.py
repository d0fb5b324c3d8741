"""`steer apply`, `get`, `watch`, `delete` and `deploy` against a real server; the services' answers are written here."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from services.cli import apply, manifests
from services.cli.exits import Exit
from services.cli.leaders import DECIDERS
from services.cli.world import following
from shared import subjects
from shared.errors import Conflict
from shared.model.deployment import ActiveRelease, Deployment, Transition
from shared.model.environment import Environment, Replicas
from shared.model.node import Node
from shared.model.release import DeployRequest, Release
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from tests.integration.steer_command import Steer

ENV = ("shop", "web", "production")
NAME = "shop/web/production"
MANIFEST = f"kind: Environment\nname: {NAME}\nreplicas: {{min: 2}}\n"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def steer(server: EmbeddedServer, tmp_path: Path) -> Steer:
    return Steer(server.url, tmp_path / "data")


async def environment(bus: Bus) -> Environment | None:
    version = await records.get(bus, subjects.ENVIRONMENT, ENV)
    record = version.record if version else None
    assert record is None or isinstance(record, Environment)
    return record


async def test_apply_creates_updates_and_leaves_what_is_equal(steer: Steer, bus: Bus) -> None:
    assert (await steer("apply", "-f", "-", stdin=MANIFEST)).out == f"Environment {NAME}: created\n"
    assert (await steer("apply", "-f", "-", stdin=MANIFEST)).out == f"Environment {NAME}: unchanged\n"
    changed = MANIFEST.replace("2", "3")
    assert (await steer("apply", "-f", "-", stdin=changed)).out == f"Environment {NAME}: updated\n"
    assert await environment(bus) == Environment(replicas=Replicas(min=3))
    assert len(await records.history(bus, subjects.ENVIRONMENT.subject(*ENV))) == 2


async def test_apply_tells_programs_the_subject_and_the_sequence(steer: Steer, bus: Bus) -> None:
    (step,) = (await steer("apply", "-f", "-", "-o", "json", stdin=MANIFEST)).json
    assert step["action"] == "created" and step["subject"] == subjects.ENVIRONMENT.subject(*ENV)
    version = await records.get(bus, subjects.ENVIRONMENT, ENV)
    assert version is not None and version.sequence == step["sequence"]


async def test_a_dry_run_writes_nothing(steer: Steer, bus: Bus) -> None:
    result = await steer("apply", "--dry-run", "-f", "-", stdin=MANIFEST)
    assert result.code == Exit.OK and "created (dry run)" in result.out
    assert await environment(bus) is None


async def test_three_mistakes_are_all_printed_and_nothing_is_published(steer: Steer, bus: Bus, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"{MANIFEST}---\n"
        "kind: Environment\nname: shop/catalog/production\nreplicas: {min: -1}\n---\n"
        "kind: Domain\nname: shop/front\nhostname: shop.example.com\nenviroment: web/production\n"
    )
    result = await steer("apply", "-f", str(file))
    assert result.code == Exit.INVALID
    assert f"{file}, document 2: replicas.min: " in result.err
    assert f"{file}, document 3: environment: missing" in result.err
    assert f"{file}, document 3: enviroment: " in result.err
    assert "3 mistakes; nothing was published" in result.err
    assert await environment(bus) is None


async def test_a_correction_replaces_a_version_that_cannot_be_read(steer: Steer, bus: Bus) -> None:
    await bus.request(subjects.ENVIRONMENT.subject(*ENV), b"not JSON", within=60)
    result = await steer("apply", "-f", "-", stdin=MANIFEST)
    assert result.out == f"Environment {NAME}: updated\n"
    assert await environment(bus) == Environment(replicas=Replicas(min=2))


async def test_a_write_that_somebody_else_was_faster_with_is_a_conflict(bus: Bus) -> None:
    (manifest,), _ = manifests.check([manifests.Source("shop.yaml", MANIFEST)])
    planned = apply.Step(manifest, "created", 0)
    await records.put(bus, subjects.ENVIRONMENT, ENV, Environment())
    with pytest.raises(Conflict, match=r"shop\.yaml, document 1"):
        await apply.publish(bus, planned)
    assert await environment(bus) == Environment()


async def test_a_release_that_is_there_is_not_changed(steer: Steer, bus: Bus) -> None:
    text = f"kind: Release\nname: {NAME}/1\nimage: web:1\n"
    assert (await steer("apply", "-f", "-", stdin=text)).code == Exit.OK
    result = await steer("apply", "-f", "-", stdin=text.replace("web:1", "web:2"))
    assert result.code == Exit.CONFLICT and "a release never changes" in result.err


async def test_what_was_deleted_can_be_made_again(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    assert (await steer("delete", "environment", NAME)).out == f"Environment {NAME}: deleted\n"
    assert await environment(bus) is None
    assert (await steer("delete", "environment", NAME)).code == Exit.FAILED
    assert (await steer("apply", "-f", "-", stdin=MANIFEST)).out == f"Environment {NAME}: created\n"


async def test_a_service_s_record_is_not_deleted_but_a_node_is(steer: Steer, bus: Bus) -> None:
    await records.put(bus, subjects.NODE, ("n1",), Node())
    await records.put(bus, subjects.ACTIVE, ENV, ActiveRelease())
    refused = await steer("delete", "active", NAME)
    assert refused.code == Exit.INVALID and "scheduler alone writes it" in refused.err
    assert (await steer("delete", "node", "n1")).code == Exit.OK


async def test_one_record_is_shown_as_a_manifest_that_apply_takes(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    shown = await steer("get", "environments", NAME)
    assert yaml.safe_load(shown.out) == {"kind": "Environment", "name": NAME, "replicas": {"min": 2}}
    assert (await steer("apply", "-f", "-", stdin=shown.out)).out == f"Environment {NAME}: unchanged\n"


async def test_a_list_holds_what_begins_like_the_name(steer: Steer, bus: Bus) -> None:
    for name in (NAME, "shop/web/staging", "shop/catalog/production"):
        await steer("apply", "-f", "-", stdin=MANIFEST.replace(NAME, name))
    listed = await steer("get", "environment", "shop/web", "-o", "json")
    assert [item["name"] for item in listed.json] == [NAME, "shop/web/staging"]
    assert "shop/catalog/production" in (await steer("get", "Environment")).out


async def test_an_earlier_version_is_shown_by_its_sequence(steer: Steer, bus: Bus) -> None:
    (first,) = (await steer("apply", "-f", "-", "-o", "json", stdin=MANIFEST)).json
    await steer("apply", "-f", "-", stdin=MANIFEST.replace("2", "3"))
    shown = await steer("get", "environment", NAME, "--at", str(first["sequence"]), "-o", "json")
    assert shown.json["record"]["replicas"]["min"] == 2


async def test_what_could_not_be_read_or_was_deleted_did_not_rule_at_its_sequence(steer: Steer, bus: Bus) -> None:
    (first,) = (await steer("apply", "-f", "-", "-o", "json", stdin=MANIFEST)).json
    broken = json.loads((await bus.request(subjects.ENVIRONMENT.subject(*ENV), b"{", within=60)).data)["seq"]
    shown = await steer("get", "environment", NAME, "--at", str(broken), "-o", "json")
    assert shown.json["sequence"] == first["sequence"]
    deleted = await records.put(bus, subjects.ENVIRONMENT, ENV, None)
    gone = await steer("get", "environment", NAME, "--at", str(deleted + 10))
    assert gone.code == Exit.FAILED
    assert gone.err.endswith(f"there was none at sequence {deleted + 10}, deleted at sequence {deleted}\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["get", "pod"], "no such kind"),
        (["get", "node", "n1/n2"], "a name is <node>"),
        (["get", "environment", "shop/*/production"], "DNS-1123"),
        (["get", "environment", "shop/web", "--at", "3"], "--at is for one record"),
        (["explain", "a/b/c/d/e"], "a node"),
        (["deploy", "shop/web", "--image", "a"], "a name is <project>/<app>/<environment>"),
        (["deploy", NAME], "an --image"),
        (["deploy", NAME, "--image", "a", "--version", "07"], "a positive decimal"),
        (["apply", "-f", "absent.yaml"], "No such file"),
        (["get", "environment", "Shop"], "<project> is 'Shop'"),
        (["get", "environment", "shop//production"], "<app> is ''"),
        (["get", "fleet", "north"], "there is one fleet"),
        (["routes", "render", "--format", "caddy", "--activator", "edge"], "--activator 'edge': not host:port"),
        (["sweep", "sources", "absent"], "absent: not a directory"),
        (["up", "--build-command", "make {nothing}"], "--command: unknown nothing"),
    ],
)
async def test_a_mistake_in_the_arguments_ends_with_its_code(steer: Steer, arguments: list[str], reason: str) -> None:
    result = await steer(*arguments)
    assert result.code == Exit.INVALID
    assert reason in result.err and not result.out


async def test_what_is_not_there_ends_with_its_code(steer: Steer, bus: Bus) -> None:
    for arguments in (["get", "node", "n1"], ["explain", "n1"], ["delete", "node", "n1"], ["rollback", NAME]):
        assert (await steer(*arguments)).code == Exit.FAILED
    result = await steer("deploy", NAME, "--image", "web:1")
    assert result.code == Exit.FAILED and "no such environment" in result.err


def test_a_server_that_is_away_ends_with_its_code_and_says_how_to_start_one(tmp_path: Path) -> None:
    result = Steer("nats://127.0.0.1:9", tmp_path).run("status")
    assert result.code == Exit.UNAVAILABLE and "steer up" in result.err and not result.out


async def test_a_deploy_writes_the_release_with_the_frozen_service_and_then_the_request(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST + "service: {run: {command: [serve]}}\n")
    told = (await steer("deploy", NAME, "--image", "web:1", "--platform", "linux/amd64", "-o", "json")).json
    release = await records.get(bus, subjects.RELEASE, (*ENV, "1"))
    request = await records.get(bus, subjects.DEPLOY, (*ENV, told["id"]))
    assert release is not None and isinstance(release.record, Release)
    assert release.record.image == "web:1" and release.record.platforms == ("linux/amd64",)
    assert release.record.service.run.command == ("serve",)
    assert request is not None and request.record == DeployRequest(version="1")
    assert release.sequence < request.sequence


async def test_a_release_that_nobody_could_read_is_refused_before_it_is_published(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    result = await steer("deploy", NAME, "--image", "web:1", "--platform", "linux amd64")
    assert result.code == Exit.INVALID and result.err.startswith("steer: deploy: platforms.0: ")
    assert await records.load(bus, [subjects.RELEASE.subject_filter]) == []


async def test_a_list_that_is_empty_says_what_there_is_none_of(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    result = await steer("get", "environments", "blog")
    assert (result.code, result.out) == (Exit.OK, "")
    assert result.err == "there is no environment whose name begins with blog\n"


async def test_each_deploy_takes_the_next_version_also_after_a_deleted_one(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    for expected in ("1", "2"):
        assert (await steer("deploy", NAME, "--image", "web:1", "-o", "json")).json["version"] == expected
    await steer("delete", "release", f"{NAME}/2")
    assert (await steer("deploy", NAME, "--image", "web:1", "-o", "json")).json["version"] == "3"


async def test_deploys_at_the_same_time_take_different_versions(steer: Steer, bus: Bus) -> None:
    from services.cli.deploy import request_deployment

    await steer("apply", "-f", "-", stdin=MANIFEST)
    requested = await asyncio.gather(*(request_deployment(bus, ENV, "web:1") for _ in range(5)))
    assert {each.request.version for each in requested} == {"1", "2", "3", "4", "5"}


async def test_a_version_that_is_there_is_run_again_but_not_changed(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    await steer("deploy", NAME, "--image", "web:1", "--version", "7")
    again = (await steer("deploy", NAME, "--version", "7", "-o", "json")).json
    assert again["release_written"] is False and again["image"] == "web:1"
    other = await steer("deploy", NAME, "--image", "web:2", "--version", "7")
    assert other.code == Exit.CONFLICT and "it never changes" in other.err


async def answer(bus: Bus, phase: str, error: str = "") -> None:
    """What a scheduler would write about the first request."""
    async with following(bus, [subjects.DEPLOY.subject_filter]) as world:
        version = await world.until(lambda: next(iter(world.all(subjects.DEPLOY)), None), 10, lambda: "no request")
    steps = (Transition(phase="placing", at=NOW), Transition(phase=phase, at=NOW, reason=error))
    record = Deployment(
        phase=phase,
        version="1",
        requested_at_sequence=version.sequence,
        phase_since=NOW,
        promoted_at=NOW if phase == "draining_old" else None,
        error=error,
        transitions=steps,
    )
    await records.put(bus, subjects.DEPLOYMENT, version.key, record)


async def test_a_deploy_that_waits_shows_the_phases_and_ends_when_the_release_serves(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    result, _ = await asyncio.gather(
        steer("deploy", NAME, "--image", "web:1", "--wait", "--timeout", "20"), answer(bus, "draining_old")
    )
    assert result.code == Exit.OK and result.out == f"{NAME}: version 1 serves\n"
    assert "placing" in result.err and "draining_old" in result.err


async def test_a_deploy_that_fails_ends_with_the_reason(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    result, _ = await asyncio.gather(
        steer("deploy", NAME, "--image", "web:1", "--wait", "--timeout", "20"), answer(bus, "failed", "no node fits")
    )
    assert result.code == Exit.FAILED and "version 1 failed: no node fits" in result.err


async def test_a_deploy_without_a_scheduler_times_out_and_says_so(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    result = await steer("deploy", NAME, "--image", "web:1", "--wait", "--timeout", "0.1")
    assert result.code == Exit.TIMED_OUT and "no scheduler has taken the request up" in result.err


async def test_a_rollback_asks_for_the_release_before(steer: Steer, bus: Bus) -> None:
    await steer("apply", "-f", "-", stdin=MANIFEST)
    for image in ("web:1", "web:2"):
        await steer("deploy", NAME, "--image", image)
    await records.put(bus, subjects.ACTIVE, ENV, ActiveRelease(version="2", previous="1"))
    told = (await steer("rollback", NAME, "-o", "json")).json
    request = await records.get(bus, subjects.DEPLOY, (*ENV, told["id"]))
    assert request is not None and request.record == DeployRequest(version="1", rollback=True)
    assert (await steer("rollback", NAME, "--to", "9")).code == Exit.FAILED


async def test_watch_prints_each_change_as_a_line(server: EmbeddedServer, bus: Bus) -> None:
    import os
    import signal
    import sys

    # Who is started in the background of a shell is told to ignore it, and tells those whom it starts.
    before_here = signal.signal(signal.SIGINT, signal.default_int_handler)
    await records.put(bus, subjects.NODE, ("before",), Node())
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "watch", "node", "-o", "json"),
        env=os.environ | {"STEER_NATS_URL": server.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert watching.stdout and watching.stderr
    try:
        async with asyncio.timeout(60):
            assert b"watching" in await watching.stderr.readline()
            await records.put(bus, subjects.NODE, ("n1",), Node(platform="linux/amd64"))
            await records.put(bus, subjects.NODE, ("n1",), None)
            lines = [json.loads(await watching.stdout.readline()) for _ in range(2)]
        assert [line["name"] for line in lines] == ["n1", "n1"]
        assert lines[0]["record"]["platform"] == "linux/amd64" and lines[1]["record"] is None
        watching.send_signal(2)
        assert await asyncio.wait_for(watching.wait(), 60) == Exit.INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, before_here)
        if watching.returncode is None:
            watching.kill()
            await watching.wait()


async def test_status_of_an_empty_log_says_that_nobody_leads(steer: Steer, bus: Bus) -> None:
    result = await steer("status", "-o", "json")
    assert result.code == Exit.OK
    assert [(each["service"], each["leads"]) for each in result.json["leaders"]] == [
        (service, False) for service in sorted(DECIDERS)
    ]
    assert result.json["environments"] == []
    assert "nobody" in (await steer("status")).out
