"""`steer explain function` and `steer call`: where a function is and why, and what it answers.

A call goes to the workers that the function's route lists, one after the other, as a proxy would do it.
"""

import asyncio
import http.client
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
import typer

from services.cli import names
from services.cli.exits import Failed, Refused, TimedOut
from services.cli.output import Format, Output, as_json, line, say
from services.cli.session import DEFAULT_DATA, Data, run
from services.cli.summary import summary
from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.model.function import Function
from shared.model.pool import Pool, PoolPlacement
from shared.model.route import FunctionRoute
from shared.model.service import DecisionRecord
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.service import Version
from shared.subjects import Key, Kind

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Explained:
    """What is known of a function. `members` is what the hosts of its pool say, by node and assignment."""

    key: Key
    function: Function
    placement: PoolPlacement | None
    pool: Pool | None
    route: FunctionRoute | None
    decision: DecisionRecord | None
    members: Mapping[str, Mapping[str, str]]


def call(
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="namespace/function.")],
    body: Annotated[
        str, typer.Argument(metavar="JSON", help="What the function gets; - reads the standard input.")
    ] = "",
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=0.1)] = 60,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Call a function, and print what it answers."""
    key = names.key_of(subjects.FUNCTION, function)
    text = sys.stdin.read() if body == STDIN else body
    _check_json(text)

    async def work(bus: Bus) -> None:
        route = await _record(bus, subjects.ROUTE_FUNCTION, key)
        if not isinstance(route, FunctionRoute) or not route.endpoints:
            explained = await explain(bus, key)
            raise Failed(f"{function}: no worker is ready for it: {_where(explained)}")
        addresses = [endpoint.address for endpoint in route.endpoints]
        status, answer = await asyncio.to_thread(_post, addresses, key[1], text.encode(), timeout)
        if status >= 400:
            raise Failed(f"{function}: answered {status}: {answer}")
        if output is Format.JSON:
            as_json({"function": function, "status": status, "answer": _value(answer)})
        else:
            line(answer) if answer else say(f"answered {status}, with nothing")

    run(work, data)


def explain_function(name: str, data: Data, output: Format) -> None:
    """Say where a function is and why, who shares its pool, and which workers have it ready."""
    key = names.key_of(subjects.FUNCTION, name)

    async def work(bus: Bus) -> None:
        explained = await explain(bus, key)
        if output is Format.JSON:
            as_json(_plain(explained))
        else:
            _show(explained)

    run(work, data)


async def explain(bus: Bus, key: Key) -> Explained:
    """Raises `Failed` where there is no such function."""
    function = await _record(bus, subjects.FUNCTION, key)
    if not isinstance(function, Function):
        raise Failed(f"{names.joined(key)}: there is no such function")
    placement = await _record(bus, subjects.PLACEMENT, key)
    placement = placement if isinstance(placement, PoolPlacement) else None
    named = placement.pool if placement is not None else ""
    pool_key = (key[0], *named.split("/")) if named else ()
    pool = await _record(bus, subjects.POOL, pool_key) if pool_key else None
    route = await _record(bus, subjects.ROUTE_FUNCTION, key)
    decision = await _record(bus, subjects.DECISION, ("pooler", "function", *key))
    if decision is None and pool_key:
        decision = await _record(bus, subjects.DECISION, ("pooler", "pool", *pool_key))
    return Explained(
        key,
        function,
        placement,
        pool if isinstance(pool, Pool) else None,
        route if isinstance(route, FunctionRoute) else None,
        decision if isinstance(decision, DecisionRecord) else None,
        await _members(bus, pool_key) if pool_key else {},
    )


async def _record(bus: Bus, kind: Kind, key: Key) -> Any:
    version = await records.get(bus, kind, key)
    return version.record if version is not None else None


async def _members(bus: Bus, pool: Key) -> dict[str, Mapping[str, str]]:
    versions = await records.load(bus, [subjects.ASSIGNMENT.subject_filter, subjects.INSTANCE.subject_filter])
    instances: dict[Key, Version] = {each.key: each for each in versions if isinstance(each.record, Instance)}
    found: dict[str, Mapping[str, str]] = {}
    for each in versions:
        record = each.record
        if isinstance(record, Assignment) and record.workload.kind == "pool" and record.workload.key == "/".join(pool):
            instance = instances.get(each.key)
            said = instance.record.members if instance and isinstance(instance.record, Instance) else {}
            found[f"{'/'.join(each.key)} ({record.desired})"] = said
    return found


def _where(explained: Explained) -> str:
    placement = explained.placement
    return "the pooler has not placed it yet" if placement is None else summary(placement)


def _show(explained: Explained) -> None:
    line(f"function {names.joined(explained.key)}", style="bold")
    line(f"  {summary(explained.function)}")
    for text in explained.function.scaling.unmet:
        line(f"  {text}", style="yellow")
    placement = explained.placement
    line(f"  {_where(explained)}", style="yellow" if placement is not None and placement.rejected else None)
    if explained.pool is not None:
        line(f"  pool: {summary(explained.pool)}")
    for worker, members in sorted(explained.members.items()):
        said = ", ".join(f"{name} {state}" for name, state in sorted(members.items()))
        line(f"  worker {worker}: {said or 'says nothing of members'}")
    if explained.route is not None:
        addresses = ", ".join(endpoint.address for endpoint in explained.route.endpoints)
        line(f"  route: {addresses or 'no worker is ready'}")
    if explained.decision is not None:
        line()
        line(f"decided: {explained.decision.outcome}", style="bold")
        line(f"  {explained.decision.now:%H:%M:%S}, reading the log up to {explained.decision.read_sequence}", "dim")
        for name, value in explained.decision.reasons.items():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            line(f"  {name}: {shown if shown != '' else 'none'}")


def _plain(explained: Explained) -> dict[str, Any]:
    return {
        "function": names.joined(explained.key),
        "record": explained.function,
        "unmet": explained.function.scaling.unmet,
        "placement": explained.placement,
        "pool": explained.pool,
        "workers": {worker: dict(members) for worker, members in explained.members.items()},
        "route": explained.route,
        "decision": explained.decision,
    }


def _check_json(text: str) -> None:
    if not text:
        return
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Refused(f"{text}: not JSON: {error}") from None


def _value(answer: str) -> Any:
    """What a function has answered: JSON as such, anything else as text."""
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError:
        return answer


def _post(addresses: list[str], name: str, body: bytes, within: float) -> tuple[int, str]:
    """The status and the text of the first worker that answers. Raises `Failed`, `TimedOut`."""
    reason = ""
    for address in addresses:
        connection = http.client.HTTPConnection(address, timeout=within)
        try:
            connection.request("POST", f"/function/{name}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace").strip()
        except TimeoutError:
            raise TimedOut(f"{address} has not answered within {within:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = f"{address}: {error or type(error).__name__}"
        finally:
            connection.close()
    raise Failed(f"no worker answers: {reason}")
