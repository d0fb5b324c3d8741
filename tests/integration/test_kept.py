"""Child processes that are kept running: real ones, of the shell."""

from pathlib import Path

from shared.runtime.kept import Kept
from tests.integration.running import eventually


def kept(script: str, output: Path, told: list[str]) -> Kept:
    return Kept(("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}, output, told.append)


async def test_one_that_ends_by_itself_is_started_again_and_that_is_told(tmp_path: Path) -> None:
    output, told = tmp_path / "out.log", list[str]()
    child = kept("echo up; exit 3", output, told)
    await child.start()
    await eventually(lambda: output.read_text().count("up") > 1)
    await child.end()
    assert told[0] == "ended with exit code 3; it starts again in 0.5 s"


async def test_one_that_is_asked_to_end_is_not_started_again(tmp_path: Path) -> None:
    output, told = tmp_path / "out.log", list[str]()
    child = kept("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done", output, told)
    await child.start()
    await eventually(lambda: output.read_text() == "up\n")
    assert await child.end(60)
    assert (output.read_text(), told) == ("up\nbye\n", [])


async def test_one_that_does_not_end_when_it_is_asked_is_killed(tmp_path: Path) -> None:
    output, told = tmp_path / "out.log", list[str]()
    child = kept("trap '' TERM; echo up; while :; do sleep 0.05; done", output, told)
    await child.start()
    await eventually(lambda: output.read_text() == "up\n")
    assert not await child.end(0.1)
    assert told == []


async def test_a_program_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    program, told = tmp_path / "program", list[str]()
    program.write_text("#!/bin/sh\nrm $0\n")
    program.chmod(0o700)
    child = Kept((str(program),), {"PATH": "/usr/bin:/bin"}, tmp_path / "out.log", told.append)
    await child.start()
    await eventually(lambda: any("cannot be started: [Errno 2] No such file" in text for text in told))
    await child.end()
