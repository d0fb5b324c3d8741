"""`steer deploy` and `steer rollback`: a release that never changes, then the request to run it."""

from dataclasses import dataclass
from typing import Annotated

import typer
from ulid import ULID

from services.cli import edit, names, outcome
from services.cli.exits import Failed, Refused
from services.cli.output import Format, Output, as_json, line, say
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.world import following
from shared import subjects
from shared.errors import Conflict
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment
from shared.model.release import DeployRequest, Release
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import Key

ATTEMPTS = 20
"""How often another version is tried where somebody else took the next one first."""

EnvironmentName = Annotated[str, typer.Argument(metavar="ENV", help="project/app/environment")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the release serves.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)]


@dataclass(frozen=True, slots=True)
class Requested:
    """A deploy request that was published."""

    environment: Key
    id: str
    request: DeployRequest
    release: Release
    release_written: bool
    sequence: int

    @property
    def key(self) -> Key:
        return (*self.environment, self.id)


def deploy(
    environment: EnvironmentName,
    *,
    image: Annotated[str, typer.Option(help="The image to run; left out, the release --version is run again.")] = "",
    version: Annotated[str, typer.Option(help="The version of the release; left out, the next one.")] = "",
    platform: Annotated[list[str] | None, typer.Option(help="A platform the image is for, as linux/amd64.")] = None,
    wait: Wait = False,
    timeout: Timeout = 600,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Publish a release of an image, its service frozen from the environment, and the request to run it."""
    key = names.environment_key(environment)
    if not image and not version:
        raise Refused("deploy: an --image, or the --version of a release that is there")
    if version:
        names.key_of(subjects.RELEASE, f"{environment}/{version}")

    async def work(bus: Bus) -> None:
        requested = await request_deployment(bus, key, image, version, tuple(platform or ()))
        await _finish(bus, requested, output, timeout if wait else None)

    run(work, data)


def rollback(
    environment: EnvironmentName,
    *,
    to: Annotated[str, typer.Option(metavar="VERSION", help="Left out, the release that served before.")] = "",
    wait: Wait = False,
    timeout: Timeout = 600,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Request an earlier release again; as long as its replicas are kept warm, it serves at once."""
    key = names.environment_key(environment)
    if to:
        names.key_of(subjects.RELEASE, f"{environment}/{to}")

    async def work(bus: Bus) -> None:
        requested = await request_rollback(bus, key, to)
        await _finish(bus, requested, output, timeout if wait else None)

    run(work, data)


async def request_deployment(
    bus: Bus, environment: Key, image: str, version: str = "", platforms: tuple[str, ...] = ()
) -> Requested:
    """Release first, request second. Raises `Failed`, `Refused`, `Conflict`."""
    if not image:
        release, written = await _existing(bus, (*environment, version)), False
    else:
        template = await _record(bus, subjects.ENVIRONMENT, environment)
        if not isinstance(template, Environment):
            raise Failed(f"{names.joined(environment)}: no such environment; `steer apply` one first")
        fields = {"image": image, "platforms": platforms, "service": template.service}
        release = edit.made(Release, "deploy", fields)
        version, written = await _publish_release(bus, environment, version, release)
    return await _request(bus, environment, DeployRequest(version=version), release, written)


async def request_rollback(bus: Bus, environment: Key, version: str = "") -> Requested:
    """Raises `Failed` where there is nothing to go back to."""
    active = await _record(bus, subjects.ACTIVE, environment)
    before = active.previous if isinstance(active, ActiveRelease) else ""
    target = version or before
    if not target:
        raise Failed(f"{names.joined(environment)}: no release served before; name one with --to")
    release = await _existing(bus, (*environment, target))
    return await _request(bus, environment, DeployRequest(version=target, rollback=True), release, False)


async def _request(
    bus: Bus, environment: Key, request: DeployRequest, release: Release, release_written: bool
) -> Requested:
    identity = str(ULID()).lower()
    sequence = await records.put(bus, subjects.DEPLOY, (*environment, identity), request, expected=0)
    return Requested(environment, identity, request, release, release_written, sequence)


async def _record(bus: Bus, kind: subjects.Kind, key: Key) -> object:
    version = await records.get(bus, kind, key)
    return version.record if version else None


async def _existing(bus: Bus, key: Key) -> Release:
    release = await _record(bus, subjects.RELEASE, key)
    if not isinstance(release, Release):
        raise Failed(f"{names.joined(key[:3])}: there is no release {key[3]}")
    return release


async def _publish_release(bus: Bus, environment: Key, version: str, release: Release) -> tuple[str, bool]:
    """The version under which the release is there, and whether it was written now."""
    if version:
        return version, await _publish_version(bus, (*environment, version), release)
    number = 1 + max((int(key[3]) for key in await _versions(bus, environment)), default=0)
    for candidate in range(number, number + ATTEMPTS):
        try:
            await records.put(bus, subjects.RELEASE, (*environment, str(candidate)), release, expected=0)
        except Conflict:  # taken meanwhile, or deleted earlier: a version is never used twice
            continue
        return str(candidate), True
    raise Conflict(f"{names.joined(environment)}: others took {ATTEMPTS} versions from {number} on meanwhile")


async def _publish_version(bus: Bus, key: Key, release: Release) -> bool:
    there = await records.get(bus, subjects.RELEASE, key)
    if there is not None and there.record == release:
        return False
    if there is not None and there.record is not None:
        raise Conflict(f"{names.joined(key[:3])}: release {key[3]} is there with another content; it never changes")
    await records.put(bus, subjects.RELEASE, key, release, expected=there.sequence if there else 0)
    return True


async def _versions(bus: Bus, environment: Key) -> list[Key]:
    found = await records.load(bus, [subjects.RELEASE.subject(*environment, "*")])
    return [version.key for version in found]


async def _finish(bus: Bus, requested: Requested, output: Format, within: float | None) -> None:
    """Say what was requested, wait where that is wanted, and say what came of it."""
    name, version = names.joined(requested.environment), requested.request.version
    verb = "roll back to" if requested.request.rollback else "deploy"
    say(f"{name}: {verb} version {version} ({requested.release.image}), request {requested.id}")
    if within is None:
        _show(requested, None, output)
        return
    deployments = subjects.DEPLOYMENT.subject(*requested.environment, ">")
    async with following(bus, [deployments, subjects.NOTICE.subject_filter]) as world:
        _show(requested, await outcome.deployed(world, requested.key, within, say), output)


def _show(requested: Requested, deployment: Deployment | None, output: Format) -> None:
    name, version = names.joined(requested.environment), requested.request.version
    if output is Format.JSON:
        as_json(
            {
                "environment": name,
                "id": requested.id,
                "version": version,
                "image": requested.release.image,
                "rollback": requested.request.rollback,
                "release_written": requested.release_written,
                "subject": subjects.DEPLOY.subject(*requested.key),
                "sequence": requested.sequence,
                "deployment": deployment,
            }
        )
    elif deployment is None:
        line(f"{name}: version {version} requested")
    else:
        line(f"{name}: version {version} serves")
