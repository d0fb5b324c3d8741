"""`steer replay`: make the decisions of the log again, and see that they are the same."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from services.builder.__main__ import config_of
from services.builder.service import service as builder
from services.cli.exits import Failed, Refused
from services.cli.output import Format, Output, as_json, line
from services.cli.replaying import History, Replayed
from services.cli.session import DEFAULT_DATA, Data, run, settings_for
from services.cli.verifying import violations
from services.pooler.service import service as pooler
from services.routes.service import service as routes
from services.scheduler.service import service as scheduler
from shared.errors import Unavailable
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Message, Restarted
from shared.runtime.settings import Settings
from shared.runtime.streams import world_subjects
from shared.service import Service

SILENCE_SECONDS = 10.0


def command(
    service: Annotated[str, typer.Argument(help="One service; left out, all of them.")] = "",
    *,
    last: Annotated[int, typer.Option(help="The newest so many decisions of each.", min=1)] = 100,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also check what must hold at every point of the log.")
    ] = False,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Make the newest decisions again from the log, and compare them byte for byte with what was stored.

    The settings of the services (STEER_CLUSTER_DOMAIN and its kin) have to be those that they ran with. What was decided
    on telemetry is counted and left out. Exit code 1: something differs, or does not hold.
    """
    chosen = [each for each in services(settings_for(data)) if service in ("", each.name)]
    if not chosen:
        raise Refused(f"{service!r} is none of scheduler, pooler, builder, routes")

    async def work(bus: Bus) -> list[Message]:
        return await whole_log(bus)

    messages = run(work, data)
    replayed = {each.name: list(History(each, messages).replay(last)) for each in chosen}
    broken = violations(messages) if verify else []
    if output is Format.JSON:
        as_json({"services": {name: _summary(found) for name, found in replayed.items()}, "violations": broken})
    else:
        _tell(replayed, broken, verify)
    wrong = sum(bool(each.differences) for found in replayed.values() for each in found)
    if wrong or broken:
        raise Failed(f"{wrong} decisions differ, {len(broken)} invariants do not hold")


def services(settings: Settings) -> tuple[Service[Any], ...]:
    """The services as they run with these settings."""
    return scheduler(), pooler(), builder(config_of(settings)), routes(settings.cluster_domain)


async def whole_log(bus: Bus) -> list[Message]:
    """Every message that is kept, in its order."""
    follower = Follower(bus, world_subjects(), start=1)
    await follower.start()
    messages: list[Message] = []
    try:
        while not follower.caught_up:
            batch = await follower.next(SILENCE_SECONDS)
            if isinstance(batch, Restarted):
                messages.clear()
            elif not batch and not follower.caught_up:
                raise Unavailable("the log does not answer")
            else:
                messages += batch
    finally:
        await follower.stop()
    return messages


def _summary(found: Sequence[Replayed]) -> dict[str, Any]:
    different = [each for each in found if each.differences]
    return {
        "same": sum(each.differences == () for each in found),
        "left_out": sum(each.differences is None for each in found),
        "different": [
            {"sequence": each.sequence, "subject": each.subject, "differences": each.differences} for each in different
        ],
    }


def _tell(replayed: dict[str, list[Replayed]], broken: Sequence[str], verify: bool) -> None:
    for name, found in replayed.items():
        told = _summary(found)
        line(f"{name}: {told['same']} the same, {len(told['different'])} different, {told['left_out']} left out")
        for each in told["different"]:
            line(f"  {each['subject']} at {each['sequence']}")
            for difference in each["differences"]:
                line(f"    {difference}")
    if verify:
        line(f"invariants: {len(broken)} do not hold")
    for text in broken:
        line(f"  {text}")
