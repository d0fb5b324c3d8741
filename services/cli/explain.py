"""`steer explain`: why something is as it is, from the decisions that the services recorded beside what they did.

The thing is told by the number of its names: a node has one, an assignment two, an environment three, a deployment four.
An assignment's reasons are those of the decisions that wrote it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from services.cli import fleet, functions, names, waits
from services.cli.exits import Failed, Refused
from services.cli.fleet import Replica
from services.cli.output import Format, Output, as_json, line, table
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.summary import summary
from services.cli.world import World, loaded, readable
from shared import subjects
from shared.model.assignment import Assignment
from shared.model.service import DecisionRecord, Notice
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.service import Version
from shared.subjects import Key, Kind

FUNCTION = subjects.FUNCTION.name
THINGS: dict[int, tuple[Kind, ...]] = {
    1: (subjects.NODE, subjects.NODE_CONTROL, subjects.NODE_STATUS),
    2: (subjects.ASSIGNMENT, subjects.INSTANCE),
    3: (subjects.ENVIRONMENT, subjects.ACTIVE, subjects.SCALE),
    4: (subjects.DEPLOY, subjects.DEPLOYMENT),
}
"""What is known of a thing, by the number of its names; the first record is the thing itself."""


@dataclass(frozen=True, slots=True)
class Told:
    """One decision: what was decided, why, and where in the log that stands."""

    subject: str
    sequence: int
    record: DecisionRecord


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a thing. The decisions are in the order in which they were made."""

    about: str
    key: Key
    present: tuple[Version, ...]
    replicas: tuple[Replica, ...]
    decisions: tuple[Told, ...]
    notices: tuple[tuple[Key, Notice], ...]
    waits: tuple[str, ...] = ()


def command(
    thing: Annotated[
        str,
        typer.Argument(metavar="THING", help="node, node/assignment, project/app/environment, or …/deployment id."),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="After the word function: namespace/function.")] = "",
    *,
    last: Annotated[int, typer.Option(help="How many decisions to show, the newest.", min=1)] = 10,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Say why something is where it is, why it is not running, and what it waits for."""
    if name:
        if thing != FUNCTION:
            raise Refused(
                f"{thing} {name}: only a function is told by a word and its name, as in: explain function a/b"
            )
        functions.explain_function(name, data, output)
        return
    kind, key = _thing(thing)

    async def work(bus: Bus) -> None:
        explanation = await explain(bus, kind, key)
        if output is Format.JSON:
            as_json(plain(explanation, last))
        else:
            show(explanation, last)

    run(work, data)


def _thing(text: str) -> tuple[Kind, Key]:
    kinds = THINGS.get(len(text.split("/")))
    if kinds is None:
        raise Refused(f"{text}: a node, a node/assignment, a project/app/environment, or one with a deployment's id")
    return kinds[0], names.key_of(kinds[0], text)


async def explain(bus: Bus, kind: Kind, key: Key) -> Explanation:
    """Raises `Failed` where nothing is known of it."""
    world = await loaded(bus, list(dict.fromkeys(each.subject_filter for each in (*fleet.KINDS, *THINGS[len(key)]))))
    present = tuple(v for each in THINGS[len(key)] if (v := world.version(each, key)) is not None)
    decisions = await _decisions(bus, kind, key)
    if not present and not decisions:
        raise Failed(f"{names.joined(key)}: nothing is known of it")
    notices = tuple(fleet.notices(world, key))
    waiting = await _waits(bus, world, kind, key)
    return Explanation(kind.name, key, present, _replicas(world, kind, key), decisions, notices, waiting)


def _replicas(world: World, kind: Kind, key: Key) -> tuple[Replica, ...]:
    if kind is subjects.NODE:
        return tuple(fleet.replicas(world, node=key[0]))
    return tuple(fleet.replicas(world, environment=key)) if kind is subjects.ENVIRONMENT else ()


async def _waits(bus: Bus, world: World, kind: Kind, key: Key) -> tuple[str, ...]:
    """What it stands at now and waits for."""
    for environment in waits.environments(world, kind, key):
        for version in await records.load(bus, [subjects.DECISION.subject(*waits.decision_key(environment))]):
            world.take(version)
    if kind is subjects.ENVIRONMENT:
        return tuple(waits.of_environment(world, key))
    return tuple(waits.of_node(world, key[0])) if kind is subjects.NODE else ()


async def _decisions(bus: Bus, kind: Kind, key: Key) -> tuple[Told, ...]:
    """What was decided about a thing; of an assignment, the decisions that wrote it."""
    environment = await _environment_of(bus, key) if kind is subjects.ASSIGNMENT else key
    told = [each for subject_filter in _filters(kind, environment) for each in await _history(bus, subject_filter)]
    if kind is subjects.ASSIGNMENT:
        told = [each for each in told if kind.subject(*key) in each.record.changes]
    return tuple(sorted(told, key=lambda each: each.sequence))


async def _environment_of(bus: Bus, assignment: Key) -> Key:
    """What an assignment belongs to, or belonged to before it was deleted. Empty where nothing tells."""
    for message in reversed(await records.history(bus, subjects.ASSIGNMENT.subject(*assignment))):
        version = readable(message)
        if version is not None and isinstance(version.record, Assignment):
            return tuple(version.record.workload.key.split("/"))
    return ()


def _filters(kind: Kind, key: Key) -> Iterator[str]:
    """The subjects of the decisions that may speak of a thing; of an assignment, by its environment's key."""
    if not key:
        return
    if kind is subjects.NODE:
        yield subjects.DECISION.subject("*", "node", *key)
    elif kind is subjects.DEPLOY:
        yield subjects.DECISION.subject("*", "deployment", *key)
    else:
        yield subjects.DECISION.subject("*", "environment", *key)
        yield subjects.DECISION.subject("*", "deployment", *key, "*")


async def _history(bus: Bus, subject_filter: str) -> list[Told]:
    """Every version of the decisions that the filter matches."""
    present = [version.kind.subject(*version.key) for version in await records.load(bus, [subject_filter])]
    versions = [readable(message) for subject in present for message in await records.history(bus, subject)]
    return [
        Told(version.kind.subject(*version.key), version.sequence, version.record)
        for version in versions
        if version is not None and isinstance(version.record, DecisionRecord)
    ]


def show(explanation: Explanation, last: int = 10) -> None:
    """For people."""
    line(f"{explanation.about} {names.joined(explanation.key)}", style="bold")
    for version in explanation.present:
        line(f"  {version.kind.name}: {summary(version.record)} (sequence {version.sequence})")
    for _, notice in explanation.notices:
        line(f"  {notice.severity}: {notice.message}", style="yellow" if notice.severity != "info" else None)
    for text in explanation.waits:
        line(f"  {text}", style="cyan")
    if explanation.replicas:
        line()
        table(
            ["NODE", "ASSIGNMENT", "ENVIRONMENT", "RELEASE", "DESIRED", "STATE", "PORTS"],
            (replica_row(replica) for replica in explanation.replicas),
        )
    for told in explanation.decisions[-last:]:
        line()
        line(f"decided at sequence {told.sequence}: {told.record.outcome}", style="bold")
        line(
            f"  {told.record.now:%H:%M:%S.%f}"[:-3] + f", reading the log up to {told.record.read_sequence}",
            style="dim",
        )
        line(f"  {told.subject}", style="dim")
        for text in [*rendered(told.record.reasons), *rendered(told.record.observation)]:
            line(f"  {text}")


def replica_row(replica: Replica) -> tuple[str, ...]:
    ports = replica.instance.ports if replica.instance else {}
    return (
        replica.node,
        replica.id,
        replica.assignment.workload.key,
        replica.assignment.release,
        replica.assignment.desired,
        replica.state,
        " ".join(f"{name}:{port}" for name, port in ports.items()),
    )


def rendered(value: Any, indent: str = "") -> Iterator[str]:
    """Nested reasons as indented lines; what is flat stays on one."""
    match value:
        case dict():
            for name, inner in value.items():
                if _flat(inner):
                    yield f"{indent}{name}: {_inline(inner)}"
                else:
                    yield f"{indent}{name}:"
                    yield from rendered(inner, indent + "  ")
        case list() | tuple():
            for inner in value:
                yield f"{indent}- {_inline(inner)}"
        case _:
            yield f"{indent}{_inline(value)}"


def _flat(value: Any) -> bool:
    match value:
        case dict():
            return all(not isinstance(inner, dict | list) for inner in value.values()) and len(value) <= 8
        case list():
            return all(not isinstance(inner, dict | list) for inner in value)
        case _:
            return True


def _inline(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{name} {_inline(inner)}" for name, inner in value.items()) or "none"
        case list() | tuple():
            return ", ".join(_inline(inner) for inner in value) or "none"
        case None:
            return "unlimited"
        case _:
            return str(value)


def plain(explanation: Explanation, last: int) -> dict[str, Any]:
    decisions = explanation.decisions[-last:]
    return {
        "about": explanation.about,
        "name": names.joined(explanation.key),
        "waits": list(explanation.waits),
        "records": {version.kind.name: version.record for version in explanation.present},
        "replicas": [
            {"node": r.node, "assignment": r.id, "wanted": r.assignment, "seen": r.instance}
            for r in explanation.replicas
        ],
        "decisions": [
            {"subject": d.subject, "sequence": d.sequence, **d.record.model_dump(mode="json")} for d in decisions
        ],
        "notices": [
            {"key": names.joined(key), **notice.model_dump(mode="json")} for key, notice in explanation.notices
        ],
    }
