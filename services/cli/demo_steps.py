"""The steps of `steer demo`, in their order; each tells what it did and which message shows it.

Nothing is taken on trust: a step ends when the records and the answers to real requests show what it says.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from services.cli import apply, deploy, explain, fleet, manifests, names, outcome, reading
from services.cli.exits import Failed
from services.cli.output import Format, as_json
from services.cli.plane import AgentSpec, Plane
from services.cli.summary import summary
from services.cli.traffic import Traffic
from services.cli.world import LiveWorld, following
from shared import subjects
from shared.model.deployment import Deployment
from shared.runtime.bus import Bus, connect
from shared.runtime.embedded import free_port
from shared.subjects import Key, Kind

SHOP = Path(__file__).parents[2] / "examples" / "shop"
HOST = "shop.example.com"
WEB: Key = ("shop", "web", "production")
CATALOG: Key = ("shop", "catalog", "production")
ENVIRONMENTS = {"/": WEB, "/products": CATALOG}
SERVICES = ("scheduler", "routes")
REGIONS = {"n1": "north", "n2": "north", "n3": "south"}
CAPACITY = (1000, 1024)
WAIT_SECONDS = 30.0
ENOUGH = 20
"""So many answers of a release for each path are a proof that it serves."""

GO_ON = (
    "  steer demo --hold                                  the same, and it stays up for the commands above",
    "  steer up --exec-root examples/shop                 a control plane of your own; in another terminal:",
    "  steer apply -f examples/shop/manifests",
    "  steer deploy shop/web/production --image exec:v1 --wait",
    "  steer explain shop/web/production",
)


def nodes() -> list[AgentSpec]:
    """Three nodes in two regions, all of them this machine."""
    return [
        AgentSpec(node, SHOP, {"region": region}, CAPACITY, (20_000 + 3000 * n, 22_999 + 3000 * n))
        for n, (node, region) in enumerate(REGIONS.items())
    ]


class Demo:
    """The steps in their order; each tells what it did and which message shows it."""

    def __init__(self, plane: Plane, tell: Callable[[str], None]) -> None:
        self._plane = plane
        self._tell = tell
        self._began = time.monotonic()
        self._steps: list[dict[str, Any]] = []
        self._bus: Bus
        self._world: LiveWorld
        self._traffic: Traffic

    async def run(self, output: Format) -> None:
        await self._start()
        self._bus = await connect(self._plane.settings, "steer-demo")
        self._traffic = Traffic(self._bus, HOST, tuple(ENVIRONMENTS), _release_in)
        try:
            await self._plane.ready(self._bus)
            self._shown(subjects.NODE, ("n1",))
            self._note(f"nats --server {self._plane.url} kv get {subjects.LEASE_BUCKET} scheduler")
            self._note(f"nats --server {self._plane.url} micro ls")
            async with following(self._bus, [kind.subject_filter for kind in outcome.KINDS]) as world:
                self._world = world
                await self._traffic.start()
                for step in (self._apply, self._first_release, self._request, self._second_release, self._crash):
                    await step()
                await self._end(output)
        finally:
            await self._traffic.stop()
            await self._bus.close()

    async def _start(self) -> None:
        self._step("Start a NATS server, the scheduler, the routes, and an agent on each of three nodes")
        await self._plane.start(free_port())

    async def _apply(self) -> None:
        self._step("Apply the manifests of the shop: two environments, two domains")
        valid, mistakes = manifests.check(manifests.sources_of([str(SHOP / "manifests")], sys.stdin))
        if mistakes:
            raise Failed("\n".join(map(str, mistakes)))
        for step in await apply.apply(self._bus, valid):
            self._note(f"{step.manifest.title}: {step.action}")
        self._shown(subjects.ENVIRONMENT, WEB)

    async def _first_release(self) -> None:
        self._step("Deploy release 1: replicas are placed, started as processes, and probed until healthy")
        requested = await self._deploy("exec:v1")
        self._note("The replicas of web, spread over nodes and regions:")
        for replica in fleet.replicas(self._world, WEB):
            self._note(f"  {REGIONS[replica.node]:<6} {summary(replica.assignment)} on {replica.node}: {replica.state}")
        self._shown(subjects.DEPLOYMENT, requested[WEB])
        self._shown(subjects.DECISION, ("scheduler", "deployment", *requested[WEB]))

    async def _request(self) -> None:
        self._step("Follow the routes and send requests through them")
        await self._until(self._all_routed, "not all replicas are routed")
        self._traffic.send()
        await self._answers("v1")
        self._note(self._counted())
        self._shown(subjects.ROUTE_HOST, subjects.host_key(HOST))

    async def _second_release(self) -> None:
        self._step("Deploy release 2 under these requests: red/green, the old set drains")
        requested = await self._deploy("exec:v2")
        await self._answers("v2")
        self._note("Release 2 answers. Release 1 stays warm for its drain window, then stops when no proxy uses it.")
        for key in ENVIRONMENTS.values():
            await self._until(partial(self._only, key, requested[key]), "the old replicas are not gone")
        self._note(self._counted())
        if self._traffic.tally.failed or self._traffic.tally.retried:
            raise Failed(f"requests failed during the switch: {self._traffic.tally}")
        self._shown(subjects.ACTIVE, WEB)

    async def _crash(self) -> None:
        self._step("Kill a process of web: the agent reports it, the scheduler starts another")
        victim = fleet.replicas(self._world, WEB)[0]
        before = {replica.id for replica in fleet.replicas(self._world, WEB)}
        pid = _pid_of(victim.id)
        os.kill(pid, signal.SIGKILL)
        self._note(f"killed {victim.id} on {victim.node}, process {pid}")
        self._shown(subjects.INSTANCE, (victim.node, victim.id))
        await self._until(lambda: self._replaced(victim.id), "the killed replica is not replaced")
        await self._until(self._all_routed, "not all replicas are routed")
        for replica in fleet.replicas(self._world, WEB):
            if replica.id not in before:
                self._note(f"{summary(replica.assignment)} on {replica.node}: {replica.state}")
                self._shown(subjects.ASSIGNMENT, (replica.node, replica.id))
        sent = self._traffic.tally.sent
        await self._until(lambda: self._traffic.tally.sent > sent + ENOUGH, "no requests are sent")
        self._note(self._counted())
        if self._traffic.tally.failed:
            raise Failed(f"requests failed: {self._traffic.tally.failed[:3]}")

    async def _end(self, output: Format) -> None:
        routes = await reading.one(self._bus, subjects.ROUTE_HOST, subjects.host_key(HOST))
        replica = fleet.replicas(self._world, WEB)[0]
        why = await explain.explain(self._bus, subjects.ASSIGNMENT, (replica.node, replica.id))
        seconds = round(time.monotonic() - self._began, 1)
        tally = self._traffic.tally
        if output is Format.JSON:
            answers = {f"{path} {release}": count for (path, release), count in sorted(tally.answers.items())}
            as_json(
                {
                    "seconds": seconds,
                    "requests": {"answers": answers, "retried": tally.retried, "failed": tally.failed},
                    "steps": self._steps,
                    "routes": reading.plain(routes),
                    "placement": explain.plain(why, 1),
                }
            )
            return
        self._step(f"Done in {seconds} s. The routes of {HOST}")
        reading.show_one(routes, output)
        self._step(f"Why {replica.id} is on {replica.node}")
        explain.show(why, last=1)
        self._step("How to go on")
        for text in GO_ON:
            self._tell(text)

    async def _deploy(self, image: str) -> dict[Key, Key]:
        """Deploy both services; the key of the deployment by environment."""
        requested = [await deploy.request_deployment(self._bus, key, image) for key in ENVIRONMENTS.values()]
        for one in requested:
            self._note(f"{names.joined(one.environment)}, release {one.request.version}, {image}")
            await outcome.deployed(self._world, one.key, WAIT_SECONDS, self._note)
        return {one.environment: one.key for one in requested}

    async def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for something that records or requests show."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + WAIT_SECONDS
        while not condition():
            if clock() > deadline:
                raise Failed(f"{otherwise} after {WAIT_SECONDS:g} s")
            await self._world.refresh(0.05)

    async def _answers(self, release: str) -> None:
        for path in ENVIRONMENTS:
            await self._until(partial(self._answered, path, release), f"{path} is not answered by {release}")

    def _answered(self, path: str, release: str) -> bool:
        return self._traffic.answered(path, release) >= ENOUGH

    def _all_routed(self) -> bool:
        return all(
            (count := fleet.count(self._world, key)).healthy == count.desired == self._traffic.endpoints(path) > 0
            for path, key in ENVIRONMENTS.items()
        )

    def _only(self, environment: Key, deployment: Key) -> bool:
        """Whether nothing but the replicas of this deployment is left, and it has ended well."""
        record = self._world.record(subjects.DEPLOYMENT, deployment, Deployment)
        left = {replica.assignment.deployment for replica in fleet.replicas(self._world, environment)}
        return record is not None and record.phase == "succeeded" and left == {deployment[-1]}

    def _replaced(self, victim: str) -> bool:
        count = fleet.count(self._world, WEB)
        return count.healthy == count.desired and all(r.id != victim for r in fleet.replicas(self._world, WEB))

    def _counted(self) -> str:
        tally = self._traffic.tally
        answers = ", ".join(f"{path} {release} {count}" for (path, release), count in sorted(tally.answers.items()))
        return f"requests: {answers}; {tally.retried} tried again elsewhere, {len(tally.failed)} failed"

    def _step(self, title: str) -> None:
        seconds = time.monotonic() - self._began
        self._steps.append({"title": title, "at_seconds": round(seconds, 1), "subjects": []})
        self._tell("")
        self._tell(f"[{seconds:4.1f} s] {title}")

    def _note(self, text: str) -> None:
        self._tell(f"  {text}")

    def _shown(self, kind: Kind, key: Key) -> None:
        """Name the message that shows a step, and the command that prints it."""
        subject = kind.subject(*key)
        self._steps[-1]["subjects"].append(subject)
        self._note(f"nats --server {self._plane.url} stream get {subjects.STREAM} --last-for {subject}")


def _release_in(body: str) -> str:
    """Which release of the shop has written this."""
    return "v2" if '"v2"' in body or "Second edition" in body else "v1"


def _pid_of(assignment: str) -> int:
    """The process of a replica, which the agent has marked with the assignment."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("STEER_ASSIGNMENT") == assignment:
                return process.pid
        except (psutil.Error, OSError):  # another user's, or gone meanwhile
            continue
    raise Failed(f"{assignment}: no such process on this machine")
