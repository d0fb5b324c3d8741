"""What all commands of `steer` have in common."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from services.cli.__main__ import app
from services.cli.output import Format


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command below a group, by what is typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_its_result_to_programs_too(name: str) -> None:
    (output,) = (each for each in COMMANDS[name].params if each.name == "output")
    assert set(output.opts) == {"--output", "-o"}
    assert output.default is Format.TEXT


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does(name: str) -> None:
    assert COMMANDS[name].help
