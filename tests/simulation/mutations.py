"""`python -m tests.simulation.mutations [NAME …]`: deliberate faults, one at a time in a copy of the code.

A mutation is a small replacement of code, and must be caught. What is tried on it goes from cheap to dear: seeds of the
simulation, then tests by name. One that nothing catches ends this with 1: a safeguard that could be taken out unnoticed.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("services", "shared", "tests", "bench", "pyproject.toml", "README.md")
SEEDS = ("-m", "tests.simulation", "--seeds", "12", "--jobs", "1", "--until-one-fails")
UNIT, INTEGRATION = "tests/unit", "tests/integration"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`changes` are (file, text, text in its place); `tests` are tried if the seeds do not catch it."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "no fence",
        (("shared/runtime/commit.py", "            if index == fenced:\n", "            if index == -1:\n"),),
        (f"{INTEGRATION}/test_runtime_leading.py",),
    ),
    Mutation(
        "no epoch check",
        (("services/agent/volumes.py", "fence is None or fence.volume_epoch < epoch:", "True:"),),
        (f"{UNIT}/test_agent_volumes.py",),
    ),
    Mutation(
        "no barrier before deciding",
        (
            (
                "shared/runtime/leader.py",
                "elif not self.leading and self._world.last_term == self.term:",
                "elif not self.leading:",
            ),
        ),
        (f"{INTEGRATION}/test_leading_barrier.py",),
    ),
    Mutation(
        "batch split in two",
        (
            (
                "shared/runtime/commit.py",
                "        return await self._store(messages, fence, has_expectations=any(m.expected is not None "
                "for m in messages))\n",
                "        for part in (messages[:1], messages[1:]):\n"
                "            if part:\n"
                "                some = any(m.expected is not None for m in part)\n"
                "                outcome = await self._store(part, fence, has_expectations=some)\n"
                "        if isinstance(outcome, Stored):\n"
                "            return Stored(outcome.sequences.stop - len(messages), len(messages))\n"
                "        return outcome\n",
            ),
            ("shared/runtime/commit.py", "import NO_RESPONDERS, NotStored", "import NO_RESPONDERS, Stored, NotStored"),
        ),
        (f"{INTEGRATION}/test_commit_whole.py",),
    ),
    Mutation(
        "half a batch given up when a server ends",
        (
            (
                "shared/runtime/embedded.py",
                "        self.port = port or free_port()\n",
                "        for each in gathered:\n            shutil.rmtree(each, ignore_errors=True)\n"
                "        self.port = port or free_port()\n",
            ),
        ),
        (f"{INTEGRATION}/test_embedded.py",),
    ),
    Mutation(
        "tombstone ignored",
        (
            (
                "services/scheduler/indexes.py",
                "    if version.record is None and version.kind not in REMEMBERED:\n",
                "    if version.record is None:\n        return\n    if version.kind in ():\n",
            ),
        ),
        (f"{UNIT}/test_scheduler_replicas.py",),
    ),
    Mutation(
        "digest not updated",
        (
            (
                "services/routes/decide.py",
                "moved(draft.digest, written.term if written else 0, wanted.term)",
                "moved(draft.digest, 0, wanted.term)",
            ),
        ),
        (f"{UNIT}/test_routes_versions.py",),
    ),
    Mutation(
        "token not compared",
        (
            (
                "services/builder/builds.py",
                "report is None or report.token != self.status.token or report.build",
                "report is None or report.build",
            ),
        ),
        ("tests/simulation/test_builder.py", f"{UNIT}/test_builder_builds.py"),
    ),
    Mutation(
        "reservation not released",
        (
            (
                "services/scheduler/indexes.py",
                "        state.cluster.release(key[0], *held)\n",
                "",
            ),
        ),
        (f"{UNIT}/test_scheduler_replicas.py",),
    ),
    Mutation(
        "deadline in memory",
        (
            ("services/scheduler/deployments.py", "        deadline=step.deadline,\n", "        deadline=None,\n"),
            (
                "services/scheduler/deployments.py",
                "        before = len(draft.changes)\n",
                "        before = len(draft.changes)\n"
                "        until = _REMEMBERED.setdefault((draft.key, record.phase), rollout.deadline(STARTING_SECONDS))\n"
                "        record = record if record.deadline else record.replaced(deadline=until)\n",
            ),
            (
                "services/scheduler/deployments.py",
                "def begin(",
                "_REMEMBERED: dict[Any, datetime] = {}\n\n\ndef begin(",
            ),
        ),
        (f"{UNIT}/test_scheduler_deployments.py",),
    ),
    Mutation(
        "routes lead to what drains",
        (("services/routes/serving.py", '    if replica.desired != "run":\n', '    if replica.desired == "stop":\n'),),
        (f"{UNIT}/test_routes_build.py",),
    ),
    Mutation(
        "a pool lets its worker go too early",
        (("services/scheduler/pools.py", "    if old and ready >= pool.desired:\n", "    if old:\n"),),
        (f"{UNIT}/test_scheduler_pools.py",),
    ),
    Mutation(
        "no wait for the proxies",
        (
            (
                "services/scheduler/replace.py",
                '    return "" if behind else f"routes version',
                '    return f"routes version',
            ),
        ),
        (f"{UNIT}/test_scheduler_replicas.py",),
    ),
    Mutation(
        "quarantine that drops",
        (("shared/runtime/repair.py", "        await self._copy(restoration)\n", ""),),
        (f"{INTEGRATION}/test_runtime_quarantine.py",),
    ),
    Mutation(
        "quarantine that forgets the good version",
        (("shared/runtime/quarantine.py", "            good = message\n", "            good = None\n"),),
        (f"{INTEGRATION}/test_runtime_quarantine.py",),
    ),
)


def main() -> int:
    names = sys.argv[1:]
    survived = []
    for mutation in MUTATIONS:
        if names and mutation.name not in names:
            continue
        with tempfile.TemporaryDirectory() as directory:
            found = caught_by(mutation, Path(directory))
        print(f"{mutation.name}: {found or 'NOT CAUGHT'}", flush=True)  # noqa: T201
        if not found:
            survived.append(mutation.name)
    return 1 if survived else 0


def caught_by(mutation: Mutation, copy: Path) -> str:
    """What fails with it, in words; empty where nothing does."""
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
    for path, old, new in mutation.changes:
        text = (copy / path).read_text()
        assert text.count(old) == 1, f"{mutation.name}: {path} has {text.count(old)} places to change"
        (copy / path).write_text(text.replace(old, new))
    commands = [
        SEEDS,
        *(("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", t) for t in mutation.tests),
    ]
    for command in commands:
        if failure := _fails(command, copy):
            return failure
    return ""


def _fails(command: Sequence[str], directory: Path) -> str:
    ran = subprocess.run([sys.executable, *command], cwd=directory, capture_output=True, text=True, check=False)
    if ran.returncode == 0:
        return ""
    assert ran.returncode == 1, f"{' '.join(command)} cannot be run: {ran.stdout[-1000:]}"
    lines = [line for line in ran.stdout.splitlines() if re.match(r"seed |FAILED |ERROR ", line)]
    return lines[0][:200] if lines else f"{' '.join(command)} ends with {ran.returncode}: {ran.stderr[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
