"""`steer build`, `builds`, `cancel`, `workers` and `logs build`: builds, and who runs them."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from ulid import ULID

from services.cli import edit, names, sources
from services.cli.build_log import follow_log, requested
from services.cli.exits import Failed, Refused, TimedOut
from services.cli.output import Format, Output, age, as_json, as_json_line, line, say, table
from services.cli.reading import one, several
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.world import following
from shared import subjects
from shared.errors import SteerError
from shared.model.build import BuildRequest, BuildStatus
from shared.model.live import LogLine
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import Key

ASK_SECONDS = 5.0

BuildName = Annotated[str, typer.Argument(metavar="BUILD", help="project/app/id")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)]

logs = typer.Typer(help="Show what builds have put out.", no_args_is_help=True)


def build(
    app: Annotated[str, typer.Argument(metavar="APP", help="project/app")],
    *,
    source: Annotated[
        str, typer.Option(metavar="DIGEST", help="The digest of a source archive that is in place.")
    ] = "",
    directory: Annotated[Path | None, typer.Option(help="A directory to pack; the archive goes to --sources.")] = None,
    store: Annotated[
        Path | None,
        typer.Option("--sources", help="Where archives lie; by default below --data.", envvar="STEER_SOURCES"),
    ] = None,
    owner: Annotated[str, typer.Option(help="Whose turn it takes; left out, the project.")] = "",
    pool: Annotated[str, typer.Option(help="The pool of workers.")] = "default",
    kind: Annotated[str, typer.Option("--type", help="How it is built.")] = "dockerfile",
    dockerfile: Annotated[str, typer.Option(help="The file that says how.")] = "Dockerfile",
    build_arg: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")] = None,
    platform: Annotated[list[str] | None, typer.Option(help="As linux/amd64; may be repeated.")] = None,
    cache_key: Annotated[str, typer.Option(help="Builds of one key share a worker's cache; left out, the app.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended, and show its log.")] = False,
    timeout: Timeout = 3600,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Ask for an image of a source."""
    if bool(source) == (directory is not None):
        raise Refused("build: a --source that is in place, or a --directory to pack")
    if app.count("/") != 1:
        raise Refused(f"{app}: an app is <project>/<app>")
    key = names.key_of(subjects.BUILD, f"{app}/{str(ULID()).lower()}")
    digest = source or sources.keep(sources.pack(directory or Path()), (store or data / sources.STORE).resolve())
    request = edit.made(BuildRequest, "build", {
        "owner": owner or key[0],
        "source_digest": digest,
        "pool": pool,
        "type": kind,
        "dockerfile": dockerfile,
        "build_args": dict(map(_argument, build_arg or ())),
        "platforms": tuple(platform or ()),
        "cache_key": cache_key or app,
    })  # fmt: skip

    run(lambda bus: _build(bus, key, request, timeout if wait else None, output), data)


async def _build(bus: Bus, key: Key, request: BuildRequest, within: float | None, output: Format) -> None:
    name = names.joined(key)
    sequence = await records.put(bus, subjects.BUILD, key, request, expected=0)
    if output is Format.TEXT:
        line(f"build {name}: requested")
    status = await _finished(bus, key, within, output) if within is not None else None
    if output is Format.JSON:
        as_json({"build": name, "source_digest": request.source_digest, "sequence": sequence, "status": status})
    if status is not None and status.state != "succeeded":
        raise Failed(f"build {name} {status.state}: {status.error}")
    if status is not None and output is Format.TEXT:
        line(f"build {name}: {status.image}")


def _argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Refused(f"--build-arg {text!r}: not NAME=VALUE")
    return name, value


async def _finished(bus: Bus, key: Key, within: float, output: Format) -> BuildStatus:
    """Wait for the end of a build; meanwhile its log is progress. Raises `TimedOut` with what it waits for."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within
    try:
        await follow_log(bus, key, within, (lambda each: say(each.line)) if output is Format.TEXT else None)
        async with following(bus, [subjects.BUILD_STATUS.subject(*key)]) as world:

            def ended() -> BuildStatus | None:
                status = world.record(subjects.BUILD_STATUS, key, BuildStatus)
                return status if status is not None and status.terminal else None

            return await world.until(ended, max(1.0, deadline - clock()), str)
    except TimedOut:
        name = names.joined(key)
        raise TimedOut(f"build {name} has not ended in {within:g} s: {await _standing(bus, key)}") from None


async def _standing(bus: Bus, key: Key) -> str:
    """Where a build stands that has not ended."""
    version = await records.get(bus, subjects.BUILD_STATUS, key)
    if version is None or not isinstance(version.record, BuildStatus):
        return "no builder has taken the request up"
    status = version.record
    queue = (await _queues(bus, {status.pool})).get(names.joined(key))
    return f"it is {status.state}" + (f", {_place(queue)}" if queue else "")


def _place(queue: Mapping[str, Any]) -> str:
    return f"place {queue['position']}, waits for {queue['waits_for']}"


def builds(
    name: Annotated[str, typer.Argument(metavar="NAME", help="project, project/app or project/app/id")] = "",
    *,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """List builds, and what those that wait are waiting for."""
    prefix = names.prefix_of(subjects.BUILD_STATUS, name)

    async def work(bus: Bus) -> None:
        if len(prefix) == len(subjects.BUILD_STATUS.tokens):
            versions = [await one(bus, subjects.BUILD_STATUS, prefix)]
        else:
            versions = await several(bus, subjects.BUILD_STATUS, prefix)
        found = [(version.key, version.record) for version in versions if isinstance(version.record, BuildStatus)]
        queues = await _queues(bus, {status.pool for _, status in found if status.state == "queued"})
        if output is Format.JSON:
            as_json([
                {"build": names.joined(key), **status.model_dump(mode="json"), "queue": queues.get(names.joined(key))}
                for key, status in found
            ])  # fmt: skip
        elif found:
            now = datetime.now(UTC)
            rows = [_row(key, status, queues.get(names.joined(key), {}), now) for key, status in found]
            table(["BUILD", "STATE", "OWNER", "WORKER", "ATTEMPT", "AGE", ""], rows)
        else:
            say("there are no builds")

    run(work, data)


async def _queues(bus: Bus, pools: set[str]) -> dict[str, dict[str, Any]]:
    """Build → its place in the queue; nothing where no builder answers."""
    found: dict[str, dict[str, Any]] = {}
    for pool in sorted(pools):
        with suppress(SteerError):
            reply = await ask(bus, "queue", {"pool": pool, "limit": 1000})
            found |= {entry["build"]: entry for entry in reply["entries"] if "build" in entry}
    return found


def _row(key: Key, status: BuildStatus, queue: Mapping[str, Any], now: datetime) -> list[str]:
    what = status.error or status.image
    if queue:
        what = _place(queue)
    elif status.stopping:
        what = f"stopping: {status.error}"
    since = status.finished_at or status.started_at or status.queued_at
    attempt = str(status.attempt) if status.attempt else ""
    return [names.joined(key), status.state, status.owner, status.worker, attempt, age(since, now), what]


def cancel(name: BuildName, *, data: Data = DEFAULT_DATA, output: Output = Format.TEXT) -> None:
    """Take a build back. One that has ended stays as it is."""
    key = names.key_of(subjects.BUILD, name)

    async def work(bus: Bus) -> None:
        version = await one(bus, subjects.BUILD, key)
        assert isinstance(version.record, BuildRequest)
        sequence = version.sequence
        if not version.record.canceled:
            canceled = version.record.model_copy(update={"canceled": True})
            sequence = await records.put(bus, subjects.BUILD, key, canceled, expected=version.sequence)
        action = "unchanged" if version.record.canceled else "canceled"
        if output is Format.JSON:
            as_json({"build": name, "action": action, "sequence": sequence})
        else:
            line(f"build {name}: {action}")

    run(work, data)


def workers(
    pool: Annotated[str, typer.Argument(metavar="POOL")] = "default",
    *,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """List the workers of a pool, what each does, and how many there should be."""
    names.key_of(subjects.BUILD_POOL, pool)

    async def work(bus: Bus) -> None:
        reply = await ask(bus, "pool", {"pool": pool})
        if output is Format.JSON:
            as_json(reply)
            return
        line(f"pool {pool}: {len(reply['workers'])} workers, {reply['wanted']} wanted, {reply['waiting']} wait")
        rows = [
            [each["worker"], str(each["ordinal"]), each["state"], each["owner"], each["build"]]
            for each in reply["workers"]
        ]
        if rows:
            table(["WORKER", "ORDINAL", "STATE", "OWNER", "BUILD"], rows)

    run(work, data)


@logs.command("build")
def logs_build(
    name: BuildName,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the build has ended.")] = False,
    timeout: Timeout = 86_400,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Print what a build has put out, attempt by attempt."""
    key = names.key_of(subjects.BUILD, name)

    def show(each: LogLine) -> None:
        if output is Format.JSON:
            as_json_line({"build": name, **each.model_dump(mode="json")})
        else:
            line(each.line)

    async def work(bus: Bus) -> None:
        if not await follow_log(bus, key, timeout if follow else None, show):
            if not await requested(bus, key):
                raise Failed(f"build {name}: there is none")
            say(f"build {name} has no log: it has not begun, or its lines are older than a week")

    run(work, data)


async def ask(bus: Bus, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The builder's answer."""
    reply = await records.request(bus, subjects.api("builder", verb), body, ASK_SECONDS)
    return dict(reply["result"])
