"""A whole control plane, each process with its own identity and no right that it does not need; with TLS."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from services.agent.config import AgentConfig
from services.agent.run import run_agent
from services.cli.security import SERVICES
from services.routes.snapshot_writer import write_snapshots
from shared import subjects
from shared.errors import RequestRefused
from shared.model.assignment import Instance
from shared.model.build import BuildPool
from shared.model.route import RouteManifest
from shared.runtime import records
from shared.runtime.bus import Bus, connect
from shared.runtime.encode import RESTORES
from shared.runtime.follow import follow_routes
from shared.runtime.jetstream import api, direct_get
from shared.runtime.keeper import Keeper
from shared.runtime.run import serve
from tests.integration.one_node import WEB
from tests.integration.running import eventually
from tests.integration.secured import DENIED, Secured

ENVIRONMENT = "shop/web/production"
MANIFEST = f"""
kind: Environment
name: {ENVIRONMENT}
replicas: {{min: 1}}
service:
  run:
    command: [{sys.executable}, web.py]
    ports: [{{name: http, container_port: 8080}}]
---
kind: Domain
name: shop/www
hostname: www.example.com
environment: web/production
port: http
"""


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Secured]:
    """The four services and an agent, over streams that the operator has made. Nobody was denied anything."""
    secured = Secured(tmp_path / "bus", tls=True)
    secured.configure("--node", "n1", "--proxy", "edge")
    secured.start()
    with capture_logs() as logs:
        made = await secured.steer("operator", "server", "streams")
        assert made.code == 0, made.err
        stop = asyncio.Event()
        running = [asyncio.create_task(each) for each in (*_services(secured, stop), _agent(secured, tmp_path, stop))]
        try:
            yield secured
        finally:
            stop.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*running), 60)
            await secured.stop()
    assert [event for event in logs if DENIED in event["event"]] == []


def _services(secured: Secured, stop: asyncio.Event) -> list[Any]:
    beside = {"routes": (write_snapshots,)}
    # All in one process, which may have so much to do that a lease lapses.
    settings = {each.name: secured.settings(each.name, lease_ttl_seconds=600) for each in SERVICES}
    return [serve(each, settings[each.name], stop=stop, alongside=beside.get(each.name, ())) for each in SERVICES]


def _agent(secured: Secured, directory: Path, stop: asyncio.Event) -> Any:
    apps = directory / "apps"
    apps.mkdir()
    (apps / "web.py").write_text(WEB)
    config = AgentConfig(node="n1", data_dir=directory / "agent", exec_root=apps, stop_replicas_on_exit=True)
    return run_agent(secured.settings("agent.n1"), config, stop)


async def test_a_release_reaches_the_proxies_with_every_identity_at_its_least(plane: Secured) -> None:
    viewer = await plane.bus("viewer")
    applied = await plane.steer("user", "apply", "-f", "-", stdin=MANIFEST)
    assert applied.code == 0, applied.err
    deployed = await plane.steer("user", "deploy", ENVIRONMENT, "--image", "exec:", "--wait", "--timeout", "60")
    assert deployed.code == 0, deployed.err
    (replica,) = await records.load(viewer, [subjects.INSTANCE.subject_filter])
    assert isinstance(replica.record, Instance) and replica.record.state == "healthy"
    proxy = asyncio.create_task(_proxy(plane))
    await eventually(lambda: _acknowledged(viewer))
    proxy.cancel()
    await asyncio.gather(proxy, return_exceptions=True)
    await eventually(lambda: direct_get(viewer, subjects.SNAPSHOT_STREAM, subjects.ROUTE_SNAPSHOT))
    for question in (("status",), ("explain", ENVIRONMENT)):
        answer = await plane.steer("viewer", *question)
        assert answer.code == 0, answer.err
    await _what_is_bad_is_answered(plane, viewer)
    await _no_answer_goes_where_it_does_harm(plane, viewer)
    await _what_was_decided_is_decided_again(plane)
    await _the_keeper_trims(plane)


async def _proxy(plane: Secured) -> None:
    async with aclosing(follow_routes(connect(plane.settings("proxy.edge"), "edge"), name="edge")) as versions:
        async for _ in versions:
            pass


async def _acknowledged(viewer: Bus) -> bool:
    """Whether the proxy serves the version in force."""
    sample = await direct_get(viewer, subjects.LIVE_STREAM, subjects.live_proxy("edge"))
    manifest = await records.get(viewer, subjects.ROUTE_MANIFEST, ())
    assert manifest is not None and isinstance(manifest.record, RouteManifest)
    return sample is not None and orjson.loads(sample.data)["version"] == manifest.record.version


async def _what_is_bad_is_answered(plane: Secured, viewer: Bus) -> None:
    user = await plane.bus("user")
    bad = {"steer.environment.shop.web.production": b"{", "steer.domain.shop.www": b"[]", "steer.build_pool.p": b"1"}
    bad |= {"steer.function.a.f": b"null"}
    for subject, body in bad.items():
        await user.request(subject, body, within=60)

    async def restored(subject: str) -> bool:
        message = await records.last_message(viewer, subject)
        copy = await direct_get(viewer, subjects.REJECTED_STREAM, subjects.rejected(subject))
        return copy is not None and message is not None and RESTORES in (message.headers or {})

    for subject in bad:
        await eventually(partial(restored, subject))


async def _no_answer_goes_where_it_does_harm(plane: Secured, viewer: Bus) -> None:
    """Whoever asks says where the answer goes; the scheduler may purge, and write its own term."""
    user, operator = await plane.bus("user"), await plane.bus("operator")
    before = await api(viewer, f"STREAM.INFO.{subjects.STREAM}")
    term = await records.get(viewer, subjects.TERM, ("scheduler",))
    state = subjects.api("scheduler", "state")
    for reply in (f"$JS.API.STREAM.PURGE.{subjects.STREAM}", subjects.TERM.subject("scheduler")):
        for body in (b"{", b"{}", b'{"kind":"environment","name":"shop/web/production"}'):
            await user.publish(state, body, reply=reply)
        await operator.publish("$SRV.PING", reply=reply)
        await operator.nc.flush()
    await records.request(user, state, {}, within=60)  # what was asked before is answered by then
    after = await api(viewer, f"STREAM.INFO.{subjects.STREAM}")
    assert after["state"]["first_seq"] == before["state"]["first_seq"]
    assert await records.get(viewer, subjects.TERM, ("scheduler",)) == term


async def _what_was_decided_is_decided_again(plane: Secured) -> None:
    user = await plane.bus("user")
    await records.put(user, subjects.BUILD_POOL, ("leased",), BuildPool(max_workers=1))
    question = {"pool": "leased", "owner": "ci", "wait_seconds": 0.5}
    with pytest.raises(RequestRefused):  # there is no worker, and will be none
        await records.request(user, subjects.api("builder", "lease"), question, within=60)
    result = await plane.steer("viewer", "replay", "--verify", "-o", "json")
    assert result.code == 0, result.out
    for name, least in {"scheduler": 3, "routes": 1, "builder": 1, "pooler": 0}.items():
        found = result.json["services"][name]
        assert found["same"] >= least and found["different"] == [], found
    assert result.json["violations"] == []


async def _the_keeper_trims(plane: Secured) -> None:
    scheduler = await plane.bus("scheduler")
    before = await api(scheduler, f"STREAM.INFO.{subjects.STREAM}")
    keeper = Keeper(scheduler, lambda: True, lambda: datetime.now(UTC) + timedelta(days=8))
    await keeper.round()
    after = await api(scheduler, f"STREAM.INFO.{subjects.STREAM}")
    assert after["state"]["messages"] < before["state"]["messages"]
