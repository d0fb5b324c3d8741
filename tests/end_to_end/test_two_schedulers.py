"""Two schedulers on the real server: the leader is killed, or stopped and continued, in the middle of a rollout."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from shared import subjects
from shared.model.assignment import Assignment
from shared.model.deployment import ActiveRelease, Deployment
from shared.model.environment import Environment, Replicas, ServiceSpec
from shared.model.release import DeployRequest, Release
from shared.model.run import PortSpec, RunSpec
from shared.model.service import Term
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower, Restarted
from shared.runtime.settings import Settings
from shared.subjects import Key
from tests.end_to_end.fleet import Fleet
from tests.end_to_end.running import ROOT, environment
from tests.end_to_end.whole_log import nothing_differs
from tests.integration.running import eventually, stop_process

ENV: Key = ("shop", "web", "production")
REPLICAS = 50


def request_id(number: int) -> str:
    return f"{number:026d}"


class Schedulers:
    """Two processes; `leader` is the one whose term is the newest."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self.bus, self.settings = bus, settings
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        for _ in range(2):
            self.processes.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "services.scheduler"),
                    cwd=ROOT,
                    env=environment() | {"STEER_NATS_URL": self.settings.nats_url},
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                )
            )
        await eventually(self.term, 60)

    async def term(self) -> Term | None:
        version = await records.get(self.bus, subjects.TERM, ("scheduler",))
        return version.record if version is not None and isinstance(version.record, Term) else None

    async def leader(self) -> asyncio.subprocess.Process:
        term = await self.term()
        assert term is not None
        return next(process for process in self.processes if f"-{process.pid}-" in term.holder)

    async def stop(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.wait()


@pytest.fixture
async def schedulers(bus: Bus, settings: Settings) -> AsyncIterator[Schedulers]:
    running = Schedulers(bus, settings)
    await running.start()
    yield running
    await running.stop()
    await nothing_differs(bus, settings)


@pytest.fixture
async def fleet(bus: Bus) -> AsyncIterator[Fleet]:
    fleet = Fleet(bus, 10)
    await fleet.start()
    yield fleet
    await fleet.stop()


async def deploy(bus: Bus, version: int) -> None:
    run = RunSpec(command=("serve",), ports=(PortSpec(name="http", container_port=8080),))
    release = Release(image=f"exec:v{version}", service=ServiceSpec(run=run))
    await records.put(bus, subjects.RELEASE, (*ENV, str(version)), release, expected=0)
    await records.put(bus, subjects.DEPLOY, (*ENV, request_id(version)), DeployRequest(version=str(version)))


async def serving(bus: Bus) -> str:
    version = await records.get(bus, subjects.ACTIVE, ENV)
    return version.record.version if version is not None and isinstance(version.record, ActiveRelease) else ""


async def begin(bus: Bus, fleet: Fleet) -> None:
    """Release 1 serves with 50 replicas; release 2 is placed and waits for the fleet."""
    spec = Environment(replicas=Replicas(min=REPLICAS), drain_window_seconds=0)
    await records.put(bus, subjects.ENVIRONMENT, ENV, spec)
    await deploy(bus, 1)
    await eventually(lambda: _serves(bus, "1"), 60)
    fleet.answers = lambda key, record: record.release != "2"
    await deploy(bus, 2)
    await eventually(lambda: len(fleet.running("2")) == REPLICAS, 60)


async def _serves(bus: Bus, version: str) -> bool:
    return await serving(bus) == version


async def finish(bus: Bus, fleet: Fleet) -> None:
    await eventually(lambda: _serves(bus, "2"), 60)
    await eventually(lambda: not [key for key, record in fleet.assignments.items() if record.release == "1"], 90)
    deployment = await records.get(bus, subjects.DEPLOYMENT, (*ENV, request_id(2)))
    assert deployment is not None
    assert isinstance(deployment.record, Deployment)
    await eventually(lambda: _phase(bus, "succeeded"), 60)


async def _phase(bus: Bus, phase: str) -> bool:
    version = await records.get(bus, subjects.DEPLOYMENT, (*ENV, request_id(2)))
    return version is not None and isinstance(version.record, Deployment) and version.record.phase == phase


def nothing_twice(fleet: Fleet) -> None:
    """No slot of a deployment was ever given to two replicas."""
    holders: dict[tuple[str, int], set[str]] = {}
    for version in fleet.log:
        if isinstance(version.record, Assignment):
            slot = (version.record.deployment, version.record.slot)
            holders.setdefault(slot, set()).add(version.key[1])
    assert all(len(names) == 1 for names in holders.values()), "a slot was placed twice"
    assert len(holders) == 2 * REPLICAS


async def terms_never_go_back(bus: Bus) -> None:
    """Every record of the scheduler carries its term; in the order of the log they only rise."""
    kinds = (subjects.ASSIGNMENT, subjects.DEPLOYMENT, subjects.ACTIVE, subjects.DECISION)
    follower = Follower(bus, [kind.subject_filter for kind in kinds], start=1)
    await follower.start()
    terms: list[int] = []
    while not follower.caught_up:
        batch = await follower.next(10)
        assert not isinstance(batch, Restarted)
        terms += [int(message.headers["Steer-Term"]) for message in batch if message.headers]
    await follower.stop()
    assert terms == sorted(terms), "a deposed leader was heard"
    assert len(set(terms)) >= 2


async def test_the_leader_is_killed_in_the_middle_of_a_rollout(bus: Bus, schedulers: Schedulers, fleet: Fleet) -> None:
    await begin(bus, fleet)
    leader = await schedulers.leader()
    leader.kill()
    await fleet.release()
    await finish(bus, fleet)
    nothing_twice(fleet)
    await terms_never_go_back(bus)


async def test_the_leader_is_paused_for_ten_seconds_and_its_writes_are_refused(
    bus: Bus, schedulers: Schedulers, fleet: Fleet
) -> None:
    await begin(bus, fleet)
    leader = await schedulers.leader()
    await stop_process(leader.pid)
    await fleet.release()
    await asyncio.sleep(10)  # the zombie's sleep is what is tested
    os.kill(leader.pid, signal.SIGCONT)
    await finish(bus, fleet)
    nothing_twice(fleet)
    await terms_never_go_back(bus)
    assert leader.returncode is None, "it goes on as a standby"
