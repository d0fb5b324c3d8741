"""`steer scale`: how many replicas an environment has at least and at most. It rules at once."""

from typing import Annotated

import typer

from services.cli import edit, names
from services.cli.deploy import EnvironmentName
from services.cli.exits import Refused
from services.cli.output import Format, Output
from services.cli.session import DEFAULT_DATA, Data, run
from shared import subjects
from shared.model.environment import Environment, Replicas
from shared.runtime.bus import Bus


def command(
    environment: EnvironmentName,
    *,
    least: Annotated[int | None, typer.Option("--min", help="Replicas at least.", min=0)] = None,
    most: Annotated[int | None, typer.Option("--max", help="Replicas at most; without one, as many as --min.")] = None,
    data: Data = DEFAULT_DATA,
    output: Output = Format.TEXT,
) -> None:
    """Set how many replicas an environment has: fixed, or the range within which a scaling policy moves."""
    if least is None and most is None:
        raise Refused("scale: --min, --max or both are wanted")
    key = names.environment_key(environment)

    def change(record: Environment) -> Environment:
        before = record.replicas
        fields = {"min": before.min if least is None else least, "max": before.max if most is None else most}
        if least is not None and most is None and before.max == before.min:
            fields["max"] = None  # a fixed number stays a fixed number
        replicas = edit.changed(Replicas(), "replicas", **fields)
        return edit.changed(record, environment, replicas=replicas)

    async def work(bus: Bus) -> None:
        edited = await edit.edit(bus, subjects.ENVIRONMENT, key, Environment, change)
        record = edited.record
        assert isinstance(record, Environment)
        low, high = record.replicas.min, record.replicas.most
        count = f"{low}" if low == high else f"{low} to {high}"
        edit.show(edited, f"{environment}: {count} replicas", output)

    run(work, data)
