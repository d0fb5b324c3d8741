"""What a running instance says about itself: questions, telemetry, metrics and health."""

import asyncio
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from shared.errors import RequestRefused
from shared.model.live import NodeSample
from shared.runtime import bus as buses
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.instance import Instance
from shared.runtime.run import serve
from shared.runtime.settings import Settings
from shared.subjects import DECISION, api
from tests.integration import toy
from tests.integration.running import Start, ask, counts, eventually

KEY = ("shop", "web", "production")
QUESTION = api("scheduler", "counted")


async def test_a_question_is_answered_with_the_sequence_it_was_answered_at(bus: Bus, start: Start) -> None:
    asked = await ask(bus, KEY, 3)
    one = await start()
    await eventually(lambda: one.state.counted.get(KEY) == 3)
    reply = await records.request(bus, QUESTION, {"environment": "shop/web/production"}, 60)
    assert reply["ok"]
    assert reply["result"] == {"counted": 3}
    assert reply["sequence"] >= asked


async def test_a_standby_answers_too(bus: Bus, start: Start) -> None:
    await ask(bus, KEY, 3)
    one, two = await start(), await start()
    await eventually(lambda: one.state.counted.get(KEY) == two.state.counted.get(KEY) == 3)
    await (one if one.leading else two).instance.api.stop()
    reply = await records.request(bus, QUESTION, {"environment": "shop/web/production"}, 60)
    assert reply["result"] == {"counted": 3}


async def test_an_answer_waits_for_the_sequence_that_the_question_names(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.instance.world.loaded)
    position = one.instance.world.sequences.read_sequence
    asking = asyncio.create_task(
        records.request(bus, QUESTION, {"environment": "a/b/c", "at_least_sequence": position + 3}, 60)
    )
    await ask(bus, KEY, 2)
    assert (await asking)["sequence"] >= position + 3


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{}", "which environment?"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"at_least_sequence": "x"}', "not a sequence"),
        (b'{"environment": 7}', "counted failed"),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused_with_a_reason(
    bus: Bus, start: Start, body: bytes, reason: str
) -> None:
    one = await start()
    await eventually(lambda: one.instance.world.loaded)
    answer = await bus.request(QUESTION, body, within=60)
    assert answer.headers is not None
    assert reason in answer.headers["Nats-Service-Error"]
    if body == b"{}":
        with pytest.raises(RequestRefused, match="which environment"):
            await records.request(bus, QUESTION, {}, 60)


async def test_what_changes_something_is_done_by_the_leader_and_answered_after_its_commit(
    bus: Bus, start: Start
) -> None:
    one, two = await start(), await start()
    await eventually(lambda: one.leading or two.leading)
    for count in (1, 2, 3):
        reply = await records.request(bus, api("scheduler", "skip"), {"environment": "a/b/c"}, 60)
        assert reply["result"] == {"counted": count}
    with pytest.raises(RequestRefused, match="which environment") as refused:
        await records.request(bus, api("scheduler", "skip"), {}, 60)
    assert not refused.value.not_now
    decision = await records.get(bus, DECISION, ("scheduler", "environment", "a", "b", "c"))
    assert decision is not None
    assert await counts(bus, ("a", "b", "c")) == [1, 2, 3]


async def test_a_request_that_has_to_wait_is_answered_after_a_later_pass(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    body = {"environment": "shop/web/production", "after": 5}
    asking = asyncio.create_task(records.request(bus, api("scheduler", "skip"), body, 60))
    await ask(bus, KEY, 5)
    assert (await asking)["result"] == {"counted": 5}


async def test_a_request_that_waits_when_the_term_ends_is_told_so(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    body = {"environment": "shop/web/production", "after": 5}
    asking = asyncio.create_task(records.request(bus, api("scheduler", "skip"), body, 60))
    await eventually(lambda: one.instance.leader._commands._waiting)
    await one.stop()
    with pytest.raises(RequestRefused, match="the leader has changed") as refused:
        await asking
    assert refused.value.not_now


async def test_the_micro_framework_lists_the_service(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.instance.world.loaded)
    info = orjson.loads((await bus.request("$SRV.INFO.steer-scheduler", within=60)).data)
    assert [endpoint["subject"] for endpoint in info["endpoints"]] == [QUESTION]


async def test_telemetry_is_heard_by_the_leader_after_it_attends(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.state.attended)
    await bus.publish("steer.live.node.n1", NodeSample(interval_seconds=2).model_dump_json().encode())
    await bus.publish("steer.live.node.n2", b"not a sample")
    await bus.publish("steer.live.node.n3", NodeSample(interval_seconds=2).model_dump_json().encode())
    await eventually(lambda: one.state.samples == ["n1", "n3"])


async def test_after_a_reconnect_the_leader_attends_again(start: Start, server: EmbeddedServer, tmp_path: Path) -> None:
    one = await start()
    await eventually(lambda: one.state.attended)
    server.kill()
    server.start(tmp_path / "jetstream", server.port)
    await eventually(lambda: len(one.state.attended) > 1)


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


async def test_metrics_and_health_are_served(settings: Settings, server: EmbeddedServer) -> None:
    bus = await buses.connect(replace(settings, metrics_port=0), "toy")
    stop = asyncio.Event()
    instance = Instance(toy.service(), bus, stop)
    task = asyncio.create_task(instance.run())
    await eventually(lambda: instance.leader.leading)
    await ask(bus, KEY, 2)
    await eventually(lambda: instance.world.state.counted.get(KEY) == 2)
    port = instance.health.port
    assert await get(port, "/healthz") == (200, "ok\n")
    assert await get(port, "/readyz") == (200, "ok\n")
    assert (await get(port, "/nothing"))[0] == 404
    status, text = await get(port, "/metrics")
    assert status == 200
    assert 'steer_leader{service="scheduler"} 1.0' in text
    assert 'steer_decisions_total{service="scheduler"} 2.0' in text
    assert 'steer_commits_total{outcome="Stored",service="scheduler"}' in text
    server.kill()
    await eventually(lambda: not bus.connected.is_set())
    assert await get(port, "/readyz") == (503, "NATS is away\n")
    assert await get(port, "/healthz") == (200, "ok\n")
    stop.set()
    await asyncio.wait_for(task, 60)
    await bus.close()


async def test_a_service_that_is_stopped_while_nats_is_away_ends(settings: Settings, server: EmbeddedServer) -> None:
    server.kill()
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(toy.service(), settings, stop=stop))
    await asyncio.wait([serving], timeout=0.2)
    assert not serving.done()
    stop.set()
    await asyncio.wait_for(serving, 60)
