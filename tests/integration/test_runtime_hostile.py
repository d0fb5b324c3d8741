"""What others may do to the log, the server's permissions, and absences: beside the traps of the list."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from shared.errors import ConfigurationError
from shared.model.node import NodeControl
from shared.runtime import bus as buses
from shared.runtime import records, streams
from shared.runtime.bus import Bus
from shared.runtime.embedded import EmbeddedServer
from shared.runtime.encode import CAUSE, RESTORES, TERM
from shared.runtime.follower import Follower, Restarted
from shared.runtime.jetstream import ApiError, api
from shared.runtime.settings import Settings
from shared.subjects import ENVIRONMENT, NODE_CONTROL, STREAM
from tests.integration.running import Start, ask, counts, eventually, loaded, received

KEY = ("shop", "web", "production")


async def test_ensuring_adds_what_is_lacking_and_removes_nothing(settings: Settings) -> None:
    bus = await buses.connect(settings, "test", patience=60)
    older = {"name": STREAM, "subjects": ["steer.node.>", "steer.of_a_newer_version.>"], "storage": "file"}
    await api(bus, f"STREAM.CREATE.{STREAM}", older)
    await streams.ensure(bus)
    await streams.ensure(bus)
    config = (await api(bus, f"STREAM.INFO.{STREAM}"))["config"]
    assert set(config["subjects"]) == {*streams.world_subjects(), "steer.of_a_newer_version.>"}
    assert config["allow_atomic"]
    assert config["deny_delete"]
    await bus.close()


async def test_the_log_takes_no_expiry_and_no_rollup_from_anyone(bus: Bus) -> None:
    await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    for header in ({"Nats-TTL": "1s"}, {"Nats-Rollup": "all"}):
        answer = await bus.request("steer.node_control.n1", b"{}", header, within=60)
        assert b"error" in answer.data
    with pytest.raises(ApiError):
        await api(bus, f"STREAM.MSG.DELETE.{STREAM}", {"seq": 1})


@pytest.mark.parametrize(
    ("subject", "headers", "body"),
    [
        (b"steer.node_control.\xff\xfe", b"NATS/1.0\r\n\r\n", b"{}"),
        (b"steer.node_control.n2", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b""),
        (b"steer.node_control.n2", b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 99\r\n\r\n", b""),
        (b"steer.node_control.n2", b"NATS/1.0\r\nno colon\r\n: no name\r\nx\xff: \xff\r\n\r\n", b"{}"),
    ],
    ids=["a subject that is not UTF-8", "a status that is not UTF-8", "a forged heartbeat", "headers that are none"],
)
async def test_a_message_made_to_deafen_its_readers_does_not(
    bus: Bus, subject: bytes, headers: bytes, body: bytes
) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    await follower.start()
    line = b"HPUB %b %d %d\r\n" % (subject, len(headers), len(headers) + len(body))
    bus.send(line + headers + body + b"\r\n", 1)
    await bus.nc.flush()
    await records.put(bus, NODE_CONTROL, ("n1",), NodeControl())
    bad, good = await received(follower, 2)
    assert (bad.sequence, good.sequence) == (1, 2)
    assert follower.restarts == 0
    assert bus.reconnects == 0
    await follower.stop()


@pytest.mark.parametrize("header", [RESTORES, TERM, CAUSE])
async def test_a_sequence_of_thousands_of_digits_is_nonsense_like_any_other(
    bus: Bus, start: Start, header: str
) -> None:
    one = await start()
    await ask(bus, KEY, 2)
    body = (await records.history(bus, ENVIRONMENT.subject(*KEY)))[0].body
    await bus.request(ENVIRONMENT.subject(*KEY), body.replace(b"2", b"3"), {header: "9" * 5000}, within=60)
    await eventually(lambda: one.state.counted.get(KEY) == 3)
    assert one.instance._faults == 0 and one.instance.follower.restarts == 0


async def test_a_stopped_leader_that_continues_does_not_write(bus: Bus, start: Start) -> None:
    """Its lease has lapsed by its own clock, which runs on while the process does not."""
    one = await start()
    await eventually(lambda: one.leading)
    one.instance.lease._deadline = 0.0001
    await ask(bus, KEY, 3)
    await eventually(lambda: one.state.counted.get(KEY) == 3)  # a new lease, a new term
    assert await counts(bus, KEY) == [1, 2, 3]


async def test_a_follower_that_was_away_too_long_loads_anew(bus: Bus, server: EmbeddedServer, tmp_path: Path) -> None:
    follower = Follower(bus, [NODE_CONTROL.subject_filter])
    await follower.start()
    await loaded(follower)
    server.kill()
    for consumer in follower._consumers:
        consumer._heard -= 13 * 3600
    server.start(tmp_path / "jetstream", server.port)

    async def restarted() -> bool:
        return isinstance(await follower.next(0.1), Restarted)

    await eventually(restarted)
    await follower.stop()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server with one user, who may not publish below `steer.node_control`."""
    config = tmp_path / "nats.conf"
    config.write_text(
        'authorization { users = [{ user: u, password: p, permissions: { publish: { deny: "steer.node_control.>" } } }] }'
    )
    server = EmbeddedServer(config=config)
    server.start(tmp_path / "jetstream")
    yield server
    server.stop()


async def test_a_refused_publish_is_told_in_the_log(guarded: EmbeddedServer) -> None:
    url = guarded.url.replace("nats://", "nats://u:p@")
    bus = await buses.connect(Settings(nats_url=url), "test", patience=60)
    with structlog.testing.capture_logs() as lines:
        await bus.nc.publish("steer.node_control.n1", b"{}")
        await eventually(lambda: [line for line in lines if line["log_level"] == "error"])
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["event"] == "this identity may not publish to steer.node_control.n1"
    assert bus.nc.is_connected
    await bus.close()


async def test_refused_credentials_end_the_connecting(guarded: EmbeddedServer) -> None:
    url = guarded.url.replace("nats://", "nats://u:wrong@")
    with pytest.raises(ConfigurationError, match="refuses the credentials") as refused:
        await buses.connect(Settings(nats_url=url), "test", patience=60)
    assert "wrong" not in str(refused.value)
