"""`steer replay`: make the decisions of the log again, and see that they are the same."""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from services.builder.__main__ import config_of
from services.builder.service import service as builder
from services.cli.exits import Failed, Refused
from services.cli.log_reading import Extent, commits, commits_in, extent, pieces
from services.cli.output import Format, Output, as_json, line
from services.cli.replaying import Replay, Replayed
from services.cli.session import DEFAULT_DATA, URL_FILE, Data, run, settings_for
from services.cli.sources import url_base
from services.pooler.service import service as pooler
from services.routes.service import service as routes
from services.scheduler.service import service as scheduler
from shared.invariants.checks import Checks, every_check
from shared.invariants.logged import Breach, Logged
from shared.runtime.bus import Bus
from shared.runtime.follower import Message
from shared.runtime.settings import Settings
from shared.service import Service

MOST_SHOWN = 10


def command(
    service: Annotated[str, typer.Argument(help="One service; left out, all of them.")] = "",
    *,
    last: Annotated[int | None, typer.Option(help="Only the newest so many decisions of each.", min=1)] = None,
    at: Annotated[int | None, typer.Option(help="The log as it was at this sequence.", min=1)] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also check what must hold at every point of the log.")
    ] = False,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Make the decisions of the log again, and compare them byte for byte with what was stored.

    The settings of the services (STEER_CLUSTER_DOMAIN and its kin) have to be those that they ran with. What is older
    than the window is left out: some of what it rests on was trimmed. Exit code 1: something differs, or does not hold.
    """
    settings = settings_of_services(data)
    chosen = [each for each in services(settings) if service in ("", each.name)]
    if not chosen:
        raise Refused(f"{service!r} is none of scheduler, pooler, builder, routes")

    async def work(bus: Bus) -> Told:
        upto = await extent(bus)
        upto = replace(upto, last=min(upto.last, at or upto.last))
        replaying = Replaying(chosen, upto.whole_since(settings.window_seconds), verify=verify, last=last)
        async with aclosing(pieces(bus, upto)) as read, aclosing(commits_in(read)) as found:
            async for commit in found:
                replaying.take(commit)
        return replaying.told

    told = run(work, data)
    if output is Format.JSON:
        as_json(_as_values(told))
    else:
        _tell(told, verify)
    if told.different or told.breaches:
        raise Failed(_failure(told))


def settings_of_services(data: Path) -> Settings:
    """Those of the environment, and what `steer up` tells its builder besides."""
    settings = settings_for(data)
    recorded = data / URL_FILE
    embedded = recorded.is_file() and recorded.read_text().strip() == settings.nats_url
    return replace(settings, source_url_base=settings.source_url_base or url_base(data)) if embedded else settings


def services(settings: Settings) -> tuple[Service[Any], ...]:
    """The services as they run with these settings."""
    return scheduler(), pooler(), builder(config_of(settings)), routes(settings.cluster_domain)


@dataclass(slots=True)
class Told:
    """What came of it: the decisions of each service, and what does not hold."""

    since: datetime | None
    decisions: dict[str, deque[Replayed]]
    breaches: list[Breach] = field(default_factory=list)

    @property
    def different(self) -> list[Replayed]:
        return [each for found in self.decisions.values() for each in found if each.differences]


class Replaying:
    """Services that are led through the log, all of its invariants with them: `take` one commit after the other.

    It keeps the states and what came of each decision, and none of the messages.
    """

    def __init__(
        self, chosen: Iterable[Service[Any]], since: datetime | None, *, verify: bool = False, last: int | None = None
    ) -> None:
        self._replays = [Replay(each, since) for each in chosen]
        self._checks = Checks(every_check()) if verify else None
        self.told = Told(since, {each.service.name: deque(maxlen=last) for each in self._replays})

    def take(self, commit: Sequence[Logged]) -> None:
        told = self.told
        for each in self._replays:
            told.decisions[each.service.name] += each.take(commit)
        if self._checks is not None:
            broken = self._checks.take(commit)
            told.breaches += broken if told.since is None or commit[-1].at >= told.since else []


def replay(
    chosen: Iterable[Service[Any]], messages: Sequence[Message], window_seconds: float, *, verify: bool = False
) -> Told:
    """Lead services through a log that was read."""
    replaying = Replaying(chosen, Extent.of(messages).whole_since(window_seconds), verify=verify)
    for commit in commits(messages):
        replaying.take(commit)
    return replaying.told


def _counts(found: Iterable[Replayed]) -> dict[str, int]:
    counts = {"same": 0, "different": 0, "left_out": 0}
    for each in found:
        counts["left_out" if each.differences is None else "different" if each.differences else "same"] += 1
    return counts


def _as_values(told: Told) -> dict[str, Any]:
    services = {
        name: {
            **_counts(found),
            "different": [
                {"sequence": each.sequence, "subject": each.subject, "differences": each.differences}
                for each in found
                if each.differences
            ],
        }
        for name, found in told.decisions.items()
    }
    return {"services": services, "violations": [breach._asdict() for breach in told.breaches]}


def _tell(told: Told, verify: bool) -> None:
    for name, found in told.decisions.items():
        counts = _counts(found)
        left_out = f", {counts['left_out']} older than the window" if counts["left_out"] else ""
        line(f"{name}: {counts['same']} decisions the same, {counts['different']} different{left_out}")
        _tell_differences([each for each in found if each.differences])
    if verify:
        count = len(told.breaches)
        line(f"invariants: {'all hold' if not count else '1 breach' if count == 1 else f'{count} breaches'}")
    for breach in told.breaches[:MOST_SHOWN]:
        line(f"  {breach.subject} at {breach.sequence}: {breach.detail} (invariant {breach.invariant})")
    _more(len(told.breaches))


def _tell_differences(different: Sequence[Replayed]) -> None:
    for each in different[:MOST_SHOWN]:
        line(f"  {each.subject} at {each.sequence}", style="red")
        for difference in each.differences or ():
            line(f"    {difference.removeprefix(f'{each.subject}: ')}")
    _more(len(different))


def _more(count: int) -> None:
    if count > MOST_SHOWN:
        line(f"  and {count - MOST_SHOWN} more: -o json has them all")


def _failure(told: Told) -> str:
    """What is wrong, in one line; and the most likely reason, where it is one of the reader's own."""
    parts = []
    if told.breaches:
        parts.append("1 breach of an invariant" if len(told.breaches) == 1 else f"{len(told.breaches)} breaches")
    if told.different:
        one = len(told.different) == 1
        parts.append("1 decision comes out otherwise" if one else f"{len(told.different)} decisions come out otherwise")
    hint = (
        "; were the services' settings (STEER_CLUSTER_DOMAIN and its kin) other than these?" if told.different else ""
    )
    return ", ".join(parts) + hint
