"""Bad input: it is rejected with its reason, the last good version rules, and nobody crashes."""

import asyncio

import orjson
import pytest

from services.scheduler.service import service as scheduler
from shared.model.environment import Environment, ServiceSpec
from shared.model.release import DeployRequest, Release
from shared.model.run import RunSpec
from shared.model.service import Notice, Rejection
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.encode import OPERATION, RESTORES
from shared.runtime.follower import Message
from shared.runtime.jetstream import api
from shared.service import Version
from shared.subjects import DEPLOY, DEPLOYMENT, ENVIRONMENT, NOTICE, REJECTED_STREAM, RELEASE
from tests.integration.running import Start, ask, counts, eventually

KEY = ("shop", "web", "production")
SUBJECT = "steer.environment.shop.web.production"
BROKEN = (
    b"{",
    b"",
    b'{"replicas": "three"}',
    b'{"replicaz": {"min": 1}}',
    b"\xff\xfe not UTF-8",
)


async def publish(bus: Bus, subject: str, body: bytes) -> int:
    return int(orjson.loads((await bus.request(subject, body, within=60)).data)["seq"])


async def rejections(bus: Bus) -> list[Rejection]:
    info = await api(bus, f"STREAM.INFO.{REJECTED_STREAM}")
    found = []
    for sequence in range(1, int(info["state"]["last_seq"]) + 1):
        answer = await api(bus, f"STREAM.MSG.GET.{REJECTED_STREAM}", {"seq": sequence})
        found.append(Rejection.model_validate_json(records.stored_message(answer["message"]).body))
    return found


async def last(bus: Bus, subject: str = SUBJECT) -> Message:
    message = await records.last_message(bus, subject)
    assert message is not None
    return message


async def restored(bus: Bus, subject: str = SUBJECT, after: int = 0) -> Message:
    """Wait for the answer to a bad message."""

    async def answer() -> Message | None:
        message = await records.last_message(bus, subject)
        answers = message is not None and message.sequence > after and RESTORES in (message.headers or {})
        return message if answers else None

    found: Message = await eventually(answer)
    return found


@pytest.mark.parametrize("body", BROKEN, ids=["cut", "empty", "a wrong type", "an unknown field", "not UTF-8"])
async def test_a_bad_version_is_rejected_and_the_good_one_published_again(bus: Bus, start: Start, body: bytes) -> None:
    good = await ask(bus, KEY, 2)
    one = await start()
    await eventually(lambda: one.state.counted.get(KEY) == 2)
    bad = await publish(bus, SUBJECT, body)
    again = await restored(bus)
    assert again.headers is not None
    assert again.headers[RESTORES] == str(good)
    assert orjson.loads(again.body)["replicas"]["min"] == 2
    (copy,) = await rejections(bus)
    assert (copy.subject, copy.sequence, copy.restored_sequence, copy.kept_by) == (SUBJECT, bad, good, "scheduler")
    assert copy.problems
    notice = await records.get(bus, NOTICE, ("scheduler", "record_rejected", "environment", *KEY))
    assert notice is not None
    assert isinstance(notice.record, Notice)
    assert str(bad) in notice.record.message
    assert one.state.wanted == {KEY: 2}


async def test_five_broken_versions_while_everything_is_down_leave_five_rejections_and_the_good_one_rules(
    bus: Bus, start: Start
) -> None:
    good = await ask(bus, KEY, 3)
    for body in BROKEN:
        await publish(bus, SUBJECT, body)
    one, two = await start(), await start()
    again = await restored(bus)
    assert again.headers is not None
    assert again.headers[RESTORES] == str(good)
    await eventually(lambda: one.state.counted.get(KEY) == two.state.counted.get(KEY) == 3)
    assert [copy.sequence for copy in await rejections(bus)] == [2, 3, 4, 5, 6]
    assert await counts(bus, KEY) == [1, 2, 3]


async def test_a_users_own_correction_wins_over_the_restore(bus: Bus, start: Start) -> None:
    await ask(bus, KEY, 1)
    await publish(bus, SUBJECT, b"{")
    await ask(bus, KEY, 5)
    one = await start()
    await eventually(lambda: one.state.counted.get(KEY) == 5)
    assert RESTORES not in ((await last(bus)).headers or {})


async def test_a_deletion_is_a_version_that_is_restored(bus: Bus, start: Start) -> None:
    await ask(bus, KEY, 1)
    deleted = await records.put(bus, ENVIRONMENT, KEY, None)
    await publish(bus, SUBJECT, b"{")
    one = await start()
    again = await restored(bus)
    assert again.headers is not None
    assert (again.headers[OPERATION], again.headers[RESTORES]) == ("delete", str(deleted))
    assert one.state.wanted == {}


async def test_what_never_was_valid_is_deleted(bus: Bus, start: Start) -> None:
    await publish(bus, SUBJECT, b"{")
    await start()
    again = await restored(bus)
    assert again.headers is not None
    assert (again.headers[OPERATION], again.headers[RESTORES]) == ("delete", "0")


@pytest.mark.parametrize(
    "tail",
    [
        "shop",
        "shop.web.production.extra",
        "Shop.web.production",
        "shop.web_.production",
        "shop.we\x01b.production",
        "*.web.production",
        "shop.>",
    ],
)
async def test_a_subject_without_its_shape_is_rejected_and_deleted(bus: Bus, start: Start, tail: str) -> None:
    subject = f"steer.environment.{tail}"
    one = await start()
    await eventually(lambda: one.leading)
    await publish(bus, subject, b"{}")
    again = await restored(bus, subject)
    assert again.headers is not None
    assert again.subject == subject
    assert again.headers[OPERATION] == "delete"
    await eventually(lambda: not one.instance.world.unreadable)
    (copy,) = await rejections(bus)
    assert copy.subject == subject
    assert one.state.wanted == {}


async def test_a_subject_too_long_to_be_answered_harms_nobody(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    bus.send(b"PUB steer.environment." + b"a" * 3950 + b" 2\r\n{}\r\n", 1)
    await ask(bus, KEY, 2)
    await eventually(lambda: one.state.counted.get(KEY) == 2)
    await eventually(lambda: not one.instance.leader.repair.due())
    two = await start()
    await eventually(lambda: two.instance.world.loaded)
    assert one.bus.reconnects == 0
    (copy,) = await rejections(bus)
    assert copy.subject.startswith("steer.environment.aaa")


async def test_a_literal_wildcard_restores_nobody_elses_record(bus: Bus, start: Start) -> None:
    await ask(bus, KEY, 2)
    one = await start()
    await eventually(lambda: one.state.counted.get(KEY) == 2)
    before = (await last(bus)).sequence
    await publish(bus, "steer.environment.*.*.*", b"{")
    await eventually(lambda: rejections(bus))
    await eventually(lambda: not one.instance.world.unreadable)
    assert (await last(bus)).sequence == before


async def test_a_subject_that_is_not_text_is_answered_too(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    bus.send(b"PUB steer.environment.\xff.web.production 2\r\n{}\r\n", 1)
    await bus.nc.flush()
    await eventually(lambda: one.instance.world.folded and not one.instance.world.unreadable)
    (copy,) = await rejections(bus)
    assert copy.subject == "steer.environment.\ufffd.web.production"


async def test_a_record_of_a_machine_is_ignored_with_a_notice_and_left_alone(bus: Bus, start: Start) -> None:
    bad = await publish(bus, "steer.node.n1", b'{"platform": 7}')
    one = await start()
    key = ("scheduler", "record_rejected", "node", "n1")
    notice = await eventually(lambda: records.get(bus, NOTICE, key))
    assert notice.record.fields["sequence"] == bad
    assert (await last(bus, "steer.node.n1")).sequence == bad
    assert await rejections(bus) == []
    assert one.state.nodes == set()


async def test_a_machines_notice_is_not_raised_again_by_the_next_leader(bus: Bus, start: Start) -> None:
    await publish(bus, "steer.node.n1", b'{"platform": 7}')
    one = await start()
    key = ("scheduler", "record_rejected", "node", "n1")
    first: Version = await eventually(lambda: records.get(bus, NOTICE, key))
    await one.stop()
    two = await start()
    await eventually(lambda: two.leading and not two.instance.leader.repair.due())
    again = await records.get(bus, NOTICE, key)
    assert again is not None
    assert again.sequence == first.sequence


async def test_a_standby_that_loads_finds_the_good_version_although_nobody_has_restored_it(
    bus: Bus, start: Start
) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    await ask(bus, KEY, 2)
    await eventually(lambda: one.state.counted.get(KEY) == 2)
    one.instance.leader.repair.due = list  # type: ignore[method-assign]  # this leader answers nothing
    await publish(bus, SUBJECT, b"{")
    two = await start()
    await eventually(lambda: two.instance.world.loaded)
    assert two.state.wanted == {KEY: 2}


async def test_a_flood_of_bad_versions_is_answered_at_its_end(bus: Bus, start: Start) -> None:
    good = await ask(bus, KEY, 1)
    one = await start()
    await eventually(lambda: one.state.counted.get(KEY) == 1)
    for _ in range(2000):
        await bus.nc.publish(SUBJECT, b"{")
    await bus.nc.flush()
    other = ("shop", "api", "production")
    await ask(bus, other, 2)  # others are served meanwhile
    await eventually(lambda: one.state.counted.get(other) == 2)
    again = await restored(bus)
    assert again.headers is not None
    assert again.headers[RESTORES] == str(good)
    await eventually(lambda: not one.instance.world.unreadable)
    restores = [m for m in await records.history(bus, SUBJECT) if RESTORES in (m.headers or {})]
    assert len(restores) < 20
    assert len(await rejections(bus)) < 1000


async def test_many_bad_subjects_at_once_are_all_answered(bus: Bus, start: Start) -> None:
    one = await start()
    await eventually(lambda: one.leading)
    await asyncio.gather(*(publish(bus, f"steer.environment.shop.w{n}.production", b"{") for n in range(60)))
    await eventually(lambda: one.instance.metrics.rejected._value.get() >= 60)
    await eventually(lambda: not one.instance.world.unreadable)


async def test_a_notice_is_deleted_when_the_record_is_corrected(bus: Bus, start: Start) -> None:
    await publish(bus, SUBJECT, b"{")
    key = ("scheduler", "record_rejected", "environment", *KEY)
    one = await start()
    await restored(bus)
    notice = await records.get(bus, NOTICE, key)
    assert notice is not None
    assert notice.record is not None
    await one.stop()
    await start()  # the next leader knows of it
    await ask(bus, KEY, 1)

    async def withdrawn() -> bool:
        version = await records.get(bus, NOTICE, key)
        return version is not None and version.record is None

    await eventually(withdrawn)


async def test_another_body_of_a_deployed_release_is_refused_whether_it_was_followed_or_loaded(
    bus: Bus, start: Start
) -> None:
    spec = ServiceSpec(run=RunSpec(command=("serve",)))
    await records.put(bus, ENVIRONMENT, KEY, Environment(service=spec))
    good = await records.put(bus, RELEASE, (*KEY, "1"), Release(image="exec:good", service=spec))
    await records.put(bus, DEPLOY, (*KEY, f"{1:026}"), DeployRequest(version="1"))
    one = await start(scheduler())
    await eventually(lambda: (DEPLOYMENT, (*KEY, f"{1:026}")) in one.instance.world.state.history_of.get(KEY, ()))
    for image in ("exec:live", "exec:while-away"):
        if image == "exec:while-away":
            await one.stop()
        bad = await records.put(bus, RELEASE, (*KEY, "1"), Release(image=image, service=spec))
        if image == "exec:while-away":
            one = await start(scheduler())
        again = await restored(bus, RELEASE.subject(*KEY, "1"), after=bad)
        assert orjson.loads(again.body)["image"] == "exec:good"
        assert (again.headers or {})[RESTORES] == str(good)
        copy = (await rejections(bus))[-1]
        assert copy.sequence == bad
        assert "a release is immutable" in copy.problems[0]
    await eventually(lambda: not one.instance.world.state.contradicted)
