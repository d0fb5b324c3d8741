"""`python -m tests.faults`: every fault, then the report. See the package."""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from time import monotonic

import uvloop

from shared.runtime import logs
from shared.runtime.embedded import binary
from shared.runtime.settings import Settings
from tests.faults import audit, trials
from tests.faults.processes import ROOT
from tests.faults.report import Part, Report, Simulated, markdown, wrong
from tests.faults.scene import scene
from tests.faults.secured import secured
from tests.faults.trials import Trial

ONE_SERVER: tuple[Trial, ...] = (
    trials.leaders_are_killed_one_by_one,
    trials.leaders_are_paused_one_by_one,
    trials.every_server_is_killed,
    trials.every_server_is_paused,
    trials.every_server_is_restarted,
    trials.a_leader_does_not_read,
    trials.the_log_is_full,
    trials.the_store_is_full,
    trials.the_disk_is_full,
    trials.a_clock_jumps,
    trials.followers_come_back_at_once,
)
THREE_SERVERS: tuple[Trial, ...] = (
    trials.leaders_are_killed_at_once,
    trials.leaders_are_paused_at_once,
    trials.every_server_is_killed,
    trials.every_server_is_paused,
    trials.every_server_is_restarted,
    trials.two_of_three_servers_are_lost,
    trials.the_log_is_full,
    trials.one_disk_of_three_is_full,
    trials.followers_come_back_at_once,
)
PARTS = {"one": ("One server", 1, ONE_SERVER), "three": ("Three servers", 3, THREE_SERVERS)}
FAILED_SEED = re.compile(r"^seed (\d+): ", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of what users want")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds are simulated besides")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "reliability.md")
    parser.add_argument("--only", choices=PARTS, help="one part, without a report")
    parser.add_argument("--trial", action="append", default=[], help="these faults alone, without a report")
    parser.add_argument("--keep", type=Path, help="where logs and stores are left, to look into them")
    options = parser.parse_args()
    logs.configure(Settings(log_level="error"), service="faults")
    chosen = [options.only] if options.only else list(PARTS)
    parts = tuple(uvloop.run(_part(each, options)) for each in chosen)
    if options.only or options.trial:
        return 1 if any(map(wrong, parts)) else 0
    with tempfile.TemporaryDirectory(prefix="steer-faults-") as folder:
        _say("Three servers with TLS and an identity for everybody")
        tried = uvloop.run(secured(Path(folder)))
    report = Report(
        on=datetime.now(UTC).date(),
        versions=_versions(),
        cores=len(os.sched_getaffinity(0)),
        seed=options.seed,
        parts=parts,
        secured=tried,
        simulated=_simulate(options.seeds),
    )
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(markdown(report))
    _say(f"written: {options.report.name}; {'everything holds' if report.holds else 'NOT everything holds'}")
    return 0 if report.holds else 1


async def _part(name: str, options: argparse.Namespace) -> Part:
    title, count, faults = PARTS[name]
    with tempfile.TemporaryDirectory(prefix="steer-faults-") as made:
        folder = (options.keep / name) if options.keep else Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        async with scene(folder, count, options.seed) as on:
            await asyncio.sleep(2)  # a world has come to be before the first fault
            began = monotonic()
            for fault in faults:
                if not options.trial or fault.__name__ in options.trial:
                    _say(f"{title}: {fault.__name__.replace('_', ' ')}")
                    await fault(on)
            seconds = monotonic() - began
            await on.quieten()
            settled = await audit.settle(on)
            await on.end()
            found = await audit.look(on, settled)
            part = Part(
                title,
                seconds,
                on.settings.lease_ttl_seconds,
                tuple(on.injected),
                tuple(on.left_out),
                dict(on.users.counts),
                found,
            )
    told = (
        f"{found.messages} messages, {found.acknowledged} acknowledged, terms {found.terms}, settled in {settled:.1f} s"
    )
    _say(f"{title}: {seconds:.0f} s, {told}")
    for each in wrong(part):
        _say(f"  {each}")
    return part


def _simulate(seeds: int) -> Simulated:
    _say(f"simulating {seeds} seeds")
    began = monotonic()
    command = (sys.executable, "-m", "tests.simulation", "--seeds", str(seeds))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    failed = tuple(int(each) for each in FAILED_SEED.findall(done.stdout))
    if done.returncode and not failed:
        raise RuntimeError(f"the simulation ended with {done.returncode}: {done.stderr[-2000:]}")
    return Simulated(seeds, failed, monotonic() - began)


def _versions() -> dict[str, str]:
    server = subprocess.run((binary(), "--version"), capture_output=True, text=True, check=True).stdout
    return {
        "Python": python_version(),
        "nats-server": server.split()[-1].removeprefix("v"),
        "nats-py": version("nats-py"),
    }


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    sys.exit(main())
