"""`steer cordon`, `uncordon` and `drain`: which nodes take replicas, and which give theirs away."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from services.cli import edit, fleet, names
from services.cli.edit import Edited
from services.cli.exits import Exit, Failed
from services.cli.explain import rendered
from services.cli.output import Format, Output, as_json, line, say, table
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.world import LiveWorld, following
from shared import subjects
from shared.model.node import NodeControl, NodeStatus
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.subjects import Key

ASK_SECONDS = 10.0

NodeName = Annotated[str, typer.Argument(metavar="NODE")]


def cordon(node: NodeName, *, data: Data = DEFAULT_DATA, output: Output = Format.TEXT) -> None:
    """Let a node take no new replicas; those that it has stay."""
    run(lambda bus: _control(bus, node, f"node {node} is cordoned", output, schedulable=False), data)


def uncordon(node: NodeName, *, data: Data = DEFAULT_DATA, output: Output = Format.TEXT) -> None:
    """Let a node take replicas again; ends a drain."""
    fields = {"schedulable": True, "drain": False, "stop_stateful": False}
    run(lambda bus: _control(bus, node, f"node {node} takes replicas", output, **fields), data)


def drain(
    node: NodeName,
    *,
    stop_stateful: Annotated[
        bool, typer.Option("--stop-stateful", help="Stop stateful replicas too; by default they hold the drain.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would move where, and what cannot.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until no replica is left.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)] = 600,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Move every replica of a node to others, each started there before it is stopped here."""

    async def work(bus: Bus) -> None:
        if dry_run:
            await _dry_run(bus, node, stop_stateful, output)
            return
        edited = await _edit(bus, node, drain=True, stop_stateful=stop_stateful)
        if wait:
            say(f"node {node} drains")
            await _drained(bus, edited, timeout)
        edit.show(edited, f"node {node} {'is drained' if wait else 'drains'}", output)

    run(work, data)


async def _control(bus: Bus, node: str, text: str, output: Format, **fields: bool) -> None:
    edit.show(await _edit(bus, node, **fields), text, output)


async def _edit(bus: Bus, node: str, **fields: bool) -> Edited:
    """Raises `Failed` for a node that nobody knows: a typing error would else be kept for ever."""
    key = names.key_of(subjects.NODE, node)
    known = await records.get(bus, subjects.NODE, key)
    if known is None or known.record is None:
        raise Failed(f"Node {node}: there is none")

    def change(record: NodeControl) -> NodeControl:
        return record.model_copy(update=fields)

    return await edit.edit(bus, subjects.NODE_CONTROL, key, NodeControl, change, new=NodeControl())


async def _drained(bus: Bus, edited: Edited, within: float) -> None:
    """Wait until the node is drained. Raises `TimedOut` with what is left and what holds it."""
    (node,) = edited.key
    kinds = (*fleet.KINDS, subjects.NODE_STATUS)
    told = -1

    def settled(world: LiveWorld) -> bool | None:
        nonlocal told
        left = len(fleet.replicas(world, node=node))
        if left != told:
            told = left
            say(f"  {left} replicas left")
        status = world.record(subjects.NODE_STATUS, edited.key, NodeStatus)
        return (status is not None and status.drain == "drained" and not left) or None

    async with following(bus, [kind.subject_filter for kind in kinds]) as world:
        await world.until(lambda: settled(world), within, lambda: _standing(world, edited.key))


def _standing(world: LiveWorld, key: Key) -> str:
    left = fleet.replicas(world, node=key[0])
    waiting = ", ".join(sorted({f"{replica.id} ({replica.assignment.desired})" for replica in left}))
    held = [
        notice.message
        for name, notice in fleet.notices(world)
        if name[1] == "drain_held" and f"drain of {key[0]}:" in notice.message
    ]
    return "; ".join([f"node {key[0]} is not drained: {waiting or 'no scheduler has said so'}", *held])


async def _dry_run(bus: Bus, node: str, stop_stateful: bool, output: Format) -> None:
    names.key_of(subjects.NODE, node)
    question = {"node": node, "stop_stateful": stop_stateful}
    answer = await records.request(bus, subjects.api("scheduler", "drain"), question, ASK_SECONDS)
    result: dict[str, Any] = answer["result"]
    if output is Format.JSON:
        as_json({"sequence": answer["sequence"], **result})
    else:
        _show(result)
    if result["held"] or result["stuck"]:
        raise SystemExit(Exit.FAILED)


def _show(result: Mapping[str, Any]) -> None:
    rows = [
        (kind, row["assignment"], row["workload"].partition("/")[2], row.get("to", ""), row.get("reason", ""))
        for kind in ("moves", "stops", "held", "stuck", "ending")
        for row in result[kind]
    ]
    if not rows:
        line(f"node {result['node']} has no replicas")
        return
    table(["", "ASSIGNMENT", "WORKLOAD", "TO", ""], rows)
    for row in result["stuck"]:
        line(f"{row['assignment']} has no place:")
        for text in rendered(row["reasons"], "  "):
            line(text)
