"""The README is true: its tables are those of the code."""

import re
from pathlib import Path

from services.cli.__main__ import app
from services.cli.exits import MEANINGS
from shared.runtime.settings import VARIABLES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_exit_codes_are_those_of_the_command() -> None:
    told = {int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", README, re.MULTILINE)}
    assert told == {code.value: meaning for code, meaning in MEANINGS.items()}


def test_every_setting_is_told_and_none_that_is_not_there() -> None:
    rows = [row.split("|")[1] for row in README.splitlines() if row.startswith("| `STEER_")]
    assert sorted(name for row in rows for name in re.findall(r"STEER_\w+", row)) == sorted(VARIABLES)


def test_every_command_is_told_and_none_that_is_not_there() -> None:
    rows = [row.split(" | ")[0] for row in README.splitlines() if row.startswith("| `steer ")]
    told = {name.removeprefix("steer ").split()[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}
    groups = {group.name for group in app.registered_groups}
    commands = {command.name for command in app.registered_commands}
    assert commands <= told <= commands | groups


def test_every_path_of_the_map_is_there() -> None:
    block = README.split("## The map")[1].split("```")[1]
    paths = [line.split()[0] for line in block.strip().splitlines()]
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


def test_no_line_tells_a_place_of_one_machine() -> None:
    assert not re.search(r"/(root|home|work|tmp)/", README)
