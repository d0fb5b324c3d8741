"""Two instances of a service on one server: who leads, and that nothing is done twice when that changes."""

from pathlib import Path

import pytest

from shared import codec
from shared.errors import SteerError
from shared.model.environment import Environment, Replicas
from shared.model.live import NodeSample
from shared.runtime import leader, records
from shared.runtime.answers import TermLost
from shared.runtime.bus import Bus
from shared.runtime.commit import Committer
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.encode import outgoing
from shared.runtime.jetstream import api
from shared.service import Change
from shared.subjects import DECISION, ENVIRONMENT, LIVE_STREAM, SCALE, TERM, live_node
from tests.integration.running import Start, ask, counts, eventually

KEY = ("shop", "web", "production")


async def test_one_instance_decides_until_nothing_is_left(bus: Bus, start: Start) -> None:
    await ask(bus, KEY, 25)
    one = await start()
    await eventually(lambda: one.state.counted.get(KEY) == 25)
    assert await counts(bus, KEY) == list(range(1, 26))


async def test_a_decision_is_recorded_with_what_it_read_and_changed(bus: Bus, start: Start) -> None:
    asked = await ask(bus, KEY, 1)
    await start()
    decision = await eventually(lambda: records.get(bus, DECISION, ("scheduler", "environment", *KEY)))
    record = decision.record
    assert record.outcome == "1"
    assert record.read_sequence >= asked
    assert record.changes == ("steer.scale.shop.web.production",)
    message = await records.last_message(bus, "steer.scale.shop.web.production")
    assert message is not None and message.headers is not None
    assert message.headers["Steer-Service"] == "scheduler"
    assert message.headers["Steer-Cause"] == str(asked)
    term = await records.get(bus, TERM, ("scheduler",))
    assert term is not None
    assert message.headers["Steer-Term"] == str(term.sequence)


async def test_what_follows_from_a_record_with_a_trace_is_part_of_the_trace(bus: Bus, start: Start) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body = codec.encode(Environment(replicas=Replicas(min=1)))
    await bus.request(ENVIRONMENT.subject(*KEY), body, {"traceparent": trace}, within=60)
    await bus.request(ENVIRONMENT.subject("shop", "api", "production"), body, {"traceparent": "not a trace"}, within=60)
    one = await start()
    await eventually(lambda: len(one.state.counted) == 2)
    for subject in ("steer.scale.shop.web.production", "steer.decision.scheduler.environment.shop.web.production"):
        message = await records.last_message(bus, subject)
        assert message is not None
        assert (message.headers or {}).get("traceparent") == trace
    other = await records.last_message(bus, "steer.scale.shop.api.production")
    assert other is not None
    assert "traceparent" not in (other.headers or {})


async def test_a_record_does_not_wait_for_the_samples_that_are_gathered(
    bus: Bus, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "SAMPLES_SECONDS", 3600.0)
    one = await start()
    await eventually(lambda: one.leading)
    await bus.publish(live_node("n1"), codec.encode(NodeSample(interval_seconds=2)))
    await eventually(lambda: one.state.samples)
    await ask(bus, KEY, 3)
    await eventually(lambda: one.state.counted.get(KEY) == 3)


async def test_a_standby_follows_and_only_one_leads(bus: Bus, start: Start) -> None:
    one, two = await start(), await start()
    await ask(bus, KEY, 10)
    await eventually(lambda: one.state.counted.get(KEY) == two.state.counted.get(KEY) == 10)
    assert one.leading != two.leading
    assert await counts(bus, KEY) == list(range(1, 11))


async def test_a_clean_stop_hands_over_at_once(bus: Bus, start: Start) -> None:
    one = await start(lease_ttl_seconds=600)
    await eventually(lambda: one.leading)
    two = await start(lease_ttl_seconds=600)
    await eventually(lambda: two.instance.world.loaded)
    await one.stop()
    await eventually(lambda: two.leading)  # so nobody has waited until the lease expires


async def test_a_leader_that_dies_is_followed_by_the_standby_and_nothing_is_done_twice(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    two = await start()
    await ask(bus, KEY, 120)
    await eventually(lambda: one.state.counted.get(KEY, 0) > 20)
    await one.crash()
    await eventually(lambda: two.state.counted.get(KEY) == 120)
    assert await counts(bus, KEY) == list(range(1, 121))


async def test_the_write_of_a_deposed_leader_is_refused(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    term = one.instance.leader.term
    await one.instance.leader.end("the test takes the term away")
    await one.instance.lease.give_back()
    two = await start()
    await eventually(lambda: two.leading or (one.leading and one.instance.leader.term > term))
    late = Committer(bus.settings, "scheduler", "late")
    late.term = term
    assert await late.commit([outgoing(Change(SCALE, KEY, None))]) == TermLost()
    assert await late.commit([outgoing(Change(SCALE, KEY, None))] * 3) == TermLost()
    await late.close()
    assert await counts(bus, KEY) == []


async def test_an_unknown_outcome_opens_a_new_term_and_nothing_is_done_twice(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    first = one.instance.leader.term
    await ask(bus, KEY, 100)
    await eventually(lambda: one.state.counted.get(KEY, 0) > 20)
    # Cut the committing connection while a commit is on its way: its outcome is unknown.
    committer = one.instance.committer
    await eventually(lambda: committer._answer is not None and not committer._answer.done())
    committer._lost()
    await eventually(lambda: one.leading and one.instance.leader.term > first)
    await eventually(lambda: one.state.counted.get(KEY) == 100)
    assert await counts(bus, KEY) == list(range(1, 101))


async def test_a_restart_of_the_server_is_survived(
    bus: Bus, start: Start, server: EmbeddedServer, tmp_path: Path
) -> None:
    one = await start()
    await ask(bus, KEY, 5)
    await eventually(lambda: one.state.counted.get(KEY) == 5)
    port = server.port
    server.kill()
    server.start(tmp_path / "jetstream", port)
    await ask(bus, KEY, 9)
    await eventually(lambda: one.state.counted.get(KEY) == 9)
    assert await counts(bus, KEY) == list(range(1, 10))


async def test_the_stream_that_a_server_kept_in_memory_is_made_again_after_its_restart(
    bus: Bus, start: Start, server: EmbeddedServer, tmp_path: Path
) -> None:
    await start()
    server.kill()
    server.start(tmp_path / "jetstream", server.port)

    async def there() -> bool:
        try:
            return bool(await api(bus, f"STREAM.INFO.{LIVE_STREAM}", within=1))
        except SteerError:  # not there yet; or the server dropped the question while it started
            return False

    await eventually(there)
