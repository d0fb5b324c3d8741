"""What is looked up when the faults are over: that all is settled, nothing is lost, and everything holds.

The whole log is read once. What was acknowledged must lie in it, byte for byte; what could not be read must be in
quarantine, unless its author was faster with a correction; every fault that hit a leader must be followed by a new term.
The decisions are made again, and the invariants checked, by the command that people use: `steer replay --verify`.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

import orjson

from services.cli.log_reading import whole_log
from shared import subjects
from shared.errors import InvalidRecord, InvalidSubject
from shared.invariants.logged import Breach
from shared.model.build import BuildStatus
from shared.model.deployment import Deployment
from shared.model.route import RouteManifest
from shared.model.service import DecisionRecord, Rejection
from shared.runtime import encode, records
from shared.runtime.bus import Bus
from shared.runtime.encode import sequence_in
from shared.runtime.follower import Follower, Message
from shared.runtime.jetstream import api
from shared.subjects import REJECTED_STREAM, REJECTED_SUBJECTS
from tests.faults.ledger import Ledger
from tests.faults.processes import NAMES, ROOT
from tests.faults.scene import Injected, Scene
from tests.faults.waiting import until

SETTLING_SECONDS = 330
"""Longer than the longest deadline of what may wait: a drain of an old set has five minutes."""
QUIET_SECONDS = 1.5


@dataclass(frozen=True)
class Findings:
    """What was found in one scene. `lost` and `violations` are empty where all is well."""

    messages: int
    acknowledged: int
    refused: int
    rejected: int
    lost: tuple[str, ...]
    violations: tuple[str, ...]
    decisions_again: int
    differences: tuple[str, ...]
    leaderless_seconds: dict[Injected, float]
    terms: dict[str, int]
    settled_seconds: float


async def settle(on: Scene) -> float:
    """Wait until everything that was begun has ended and is served; the seconds that took."""
    began = monotonic()
    deadline = began + SETTLING_SECONDS
    previous, since = -1, began
    while True:
        on.check_doers()
        last, open_ends = await until(lambda: _look(on), "the log answers")
        now = monotonic()
        if last != previous or open_ends:
            previous, since = last, now
        elif now - since >= QUIET_SECONDS:
            return since - began
        assert now < deadline, (
            f"not settled after {SETTLING_SECONDS} s: {', '.join(open_ends) or 'the log is not quiet'}"
        )
        await asyncio.sleep(0.3)


async def _open_ends(on: Scene) -> list[str]:
    kinds = (subjects.DEPLOYMENT, subjects.BUILD_STATUS, subjects.ROUTE_MANIFEST)
    found: list[str] = []
    for version in await records.load(on.bus, [kind.subject_filter for kind in kinds]):
        match version.record:
            case Deployment() | BuildStatus() as record if not record.terminal:
                found.append(f"{version.kind.name} {'/'.join(version.key)}")
            case RouteManifest(version=number) if any(served < number for served in on.served.values()):
                found.append(f"route version {number} is not served")
            case _:
                pass
    return found[:5]


async def _look(on: Scene) -> tuple[int, list[str]]:
    """The end of the log, and what has not come to its end yet."""
    info = await api(on.bus, f"STREAM.INFO.{subjects.STREAM}")
    return int(info["state"]["last_seq"]), await _open_ends(on)


async def look(on: Scene, settled_seconds: float) -> Findings:
    """Everything is settled, and nobody writes any more."""
    log = await whole_log(on.bus)
    again = await _decided_again(on)
    return Findings(
        messages=len(log),
        acknowledged=len(on.ledger.acknowledged),
        refused=on.ledger.refused,
        rejected=len(on.ledger.rejected),
        lost=(*lost(log, on.ledger), *await _not_in_quarantine(on.bus, log, on.ledger)),
        violations=tuple(str(Breach(**each)) for each in again["violations"]),
        decisions_again=sum(found["same"] for found in again["services"].values()),
        differences=tuple(
            f"{each['subject']} at {each['sequence']}: {'; '.join(each['differences'])}"
            for found in again["services"].values()
            for each in found["different"]
        ),
        leaderless_seconds={each: _until_the_next_term(log, each) for each in on.injected if each.leader_of},
        terms={name: len(_terms(log, name)) for name in NAMES},
        settled_seconds=settled_seconds,
    )


def lost(log: Sequence[Message], ledger: Ledger) -> list[str]:
    """What was acknowledged and is not where the acknowledgement said."""
    stored = {message.sequence: (message.subject, message.body) for message in log}
    return [
        f"{subject} at {sequence}"
        for sequence, (subject, body) in ledger.acknowledged.items()
        if stored.get(sequence) != (subject, body)
    ]


async def _not_in_quarantine(bus: Bus, log: Sequence[Message], ledger: Ledger) -> list[str]:
    """What could not be read, is in no quarantine, and was not corrected by its author either."""
    kept = {each.sequence for each in await _rejections(bus)}
    following: dict[str, list[Message]] = {}
    for message in log:
        following.setdefault(message.subject, []).append(message)
    missing = []
    for sequence in sorted(ledger.rejected - kept):
        subject = ledger.acknowledged[sequence][0]
        later = (each for each in following.get(subject, ()) if each.sequence > sequence)
        ruling = next((each for each in later if each.sequence not in ledger.rejected), None)
        if ruling is None or encode.RESTORES in (ruling.headers or {}):
            missing.append(f"{subject} at {sequence} is not in quarantine")
    return missing


async def _rejections(bus: Bus) -> list[Rejection]:
    follower = Follower(bus, [REJECTED_SUBJECTS], stream=REJECTED_STREAM, start=1)
    await follower.start()
    found: list[Rejection] = []
    while not follower.caught_up:
        batch = await follower.next(10)
        if isinstance(batch, list):
            found += [Rejection.model_validate_json(message.body) for message in batch]
    await follower.stop()
    return found


def _terms(log: Sequence[Message], service: str) -> list[Message]:
    subject = subjects.TERM.subject(service)
    return [message for message in log if message.subject == subject]


def _until_the_next_term(log: Sequence[Message], fault: Injected) -> float:
    after = (each.at for each in _terms(log, fault.leader_of) if each.at > fault.began_at)
    return (next(after) - fault.began_at).total_seconds()


async def _decided_again(on: Scene) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEER_")}
    environment |= {"STEER_NATS_URL": on.settings.nats_url, "STEER_REPLICAS": str(on.settings.replicas)}
    arguments = ("replay", "--verify", "--data", str(on.folder / "steer"), "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", *arguments),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert out, f"steer replay --verify: {err.decode()}"
    return dict(orjson.loads(out))


async def routed_version(bus: Bus) -> int:
    """The version of the routes that is in force; 0 before there is one."""
    version = await records.get(bus, subjects.ROUTE_MANIFEST, ())
    return version.record.version if version is not None and isinstance(version.record, RouteManifest) else 0


async def newest_term(bus: Bus, service: str) -> int:
    """The sequence of the newest term message."""
    version = await records.get(bus, subjects.TERM, (service,))
    assert version is not None, f"{service} has no term"
    return version.sequence


async def furthest_from_the_server(bus: Bus, service: str, term: int) -> timedelta:
    """By how much the time of a decision of this term differs at most from the server's when it was stored."""
    worst = timedelta()
    for message in await whole_log(bus):
        if sequence_in(message.headers, encode.TERM) == term and message.subject.startswith(
            f"{subjects.DECISION.prefix}.{service}."
        ):
            try:
                record = records.version_of(message).record
            except (InvalidRecord, InvalidSubject):
                continue
            if isinstance(record, DecisionRecord):
                worst = max(worst, abs(message.at - record.now))
    return worst
