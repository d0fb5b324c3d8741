"""Everything that can be wrong with a user's record, at once, while the four services run.

Each message lands in quarantine with its subject, the field and the reason; the last good version rules; nobody loses its
term or its state; and what is good is decided meanwhile and afterwards.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from services.cli.security import SERVICES
from shared import codec, subjects
from shared.errors import InvalidRecord
from shared.model.service import Rejection
from shared.runtime import bus as buses
from shared.runtime import records
from shared.runtime.bus import Bus
from shared.runtime.encode import RESTORES, is_tombstone
from shared.runtime.follower import Follower, Restarted
from shared.runtime.instance import Instance
from shared.runtime.quarantine import printable
from shared.runtime.settings import Settings
from shared.subjects import KINDS, Key, Kind, Owner
from tests.integration.running import Running, eventually
from tests.wire.examples import GOLDEN, RECORDS, ULID
from tests.wire.test_malformed import MALFORMED

USERS = tuple(kind for kind in KINDS if kind.owner is Owner.USERS)
PAYLOAD = 1024 * 1024 - 4096
BUILD = {"owner": "ci", "source_digest": "abc"}
FUNCTION = {"runtime": "python", "handler": "a.b", "artifact": "a.zip"}


def _json(good: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps(good | changes).encode()


OF_EVERY_KIND: dict[str, tuple[bytes, str]] = {
    "cut off": (b'{"a":', ""),
    "not UTF-8": (b'{"\xff":1}', ""),
    "a list": (b"[]", ""),
    "an unknown field": (b"", "surprise"),
    "its own name": (b"", "name"),
}
SPECIFIC: dict[str, tuple[Kind, bytes, str]] = {
    "a schedule of a word": (subjects.VOLUME, b'{"snapshot_policy":{"schedule":"often"}}', "snapshot_policy.schedule"),
    "a zone of nowhere": (subjects.VOLUME, b'{"snapshot_policy":{"timezone":"Mars/A"}}', "snapshot_policy.timezone"),
    "a zone that climbs": (subjects.VOLUME, b'{"snapshot_policy":{"timezone":"../a"}}', "snapshot_policy.timezone"),
    "a request that is no ULID": (subjects.VOLUME, b'{"snapshot_request":"now"}', "snapshot_request"),
    "a node with a dot": (subjects.VOLUME, b'{"node":"n.1"}', "node"),
    "an owner with a space": (subjects.BUILD, _json(BUILD, owner="a b"), "owner"),
    "a digest that climbs": (subjects.BUILD, _json(BUILD, source_digest="../a"), "source_digest"),
    "an argument named with =": (subjects.BUILD, _json(BUILD, build_args={"A=": ""}), "build_args.A=.[key]"),
    "a pool with a star": (subjects.BUILD, _json(BUILD, pool="*"), "pool"),
    "a build of nobody": (subjects.BUILD, b"{}", "owner"),
    "no worker at most": (subjects.BUILD_POOL, b'{"max_workers":0}', "max_workers"),
    "max below min": (subjects.BUILD_POOL, b'{"min_workers":5,"max_workers":2}', ""),
    "a lease of NaN": (subjects.BUILD_POOL, b'{"lease_ttl_seconds":NaN}', "lease_ttl_seconds"),
    "an endless wait": (subjects.BUILD_POOL, b'{"max_idle_seconds":1e999}', "max_idle_seconds"),
    "a runtime without a run": (subjects.RUNTIME, b"{}", "run"),
    "a limit of no members": (subjects.POOLING_POLICY, b'{"limit":0}', "limit"),
    "an admission unheard of": (subjects.POOLING_POLICY, b'{"admission":"first"}', "admission"),
    "a grant with a space": (subjects.ACCESS, b'{"grants":["a b"]}', "grants.0"),
    "a control character": (subjects.ACCESS, b'{"owned":["kv/\\u0000"]}', "owned.0"),
    "grants as a word": (subjects.ACCESS, b'{"grants":"all"}', "grants"),
    "a handler that runs code": (subjects.FUNCTION, _json(FUNCTION, handler="a.b()"), "handler"),
    "two links of one name": (
        subjects.FUNCTION,
        _json(FUNCTION, links=[{"alias": "a", "target": "b"}] * 2),
        "links",
    ),
    "an environment of 3 KiB": (subjects.FUNCTION, _json(FUNCTION, env={"A": "x" * 3000}), "env.A"),
    "16 replicas of a function": (
        subjects.FUNCTION,
        _json(FUNCTION, scaling={"min_replicas": 16}),
        "scaling.min_replicas",
    ),
}
MALFORMED_SUBJECTS: dict[str, bytes] = {
    "a token too few": b"steer.environment.bad.web",
    "a token too many": b"steer.environment.bad.web.production.x",
    "one token of five": b"steer.deploy.bad",
    "upper case": b"steer.environment.bad.Web.production",
    "an underscore": b"steer.environment.bad.we_b.production",
    "a dash in front": b"steer.environment.bad.-web.production",
    "64 characters": b"steer.environment.bad." + b"w" * 64 + b".production",
    "a star": b"steer.environment.bad.*.production",
    "all that follows": b"steer.environment.bad.>",
    "not UTF-8": b"steer.environment.bad.\xff\xfe.production",
    "an umlaut": "steer.environment.bad.w\u00fcb.production".encode(),
    "a control character": b"steer.environment.bad.w\x01b.production",
    "a delete character": b"steer.environment.bad.w\x7fb.production",
    "version 0": b"steer.release.bad.web.production.0",
    "a version of a word": b"steer.release.bad.web.production.v1",
    "a version of 30 digits": b"steer.release.bad.web.production." + b"9" * 30,
    "an id in upper case": b"steer.deploy.bad.web.production." + ULID.upper().encode(),
    "a domain with a dot": b"steer.domain.bad.www.example",
    "a node with a star": b"steer.node_control.*",
    "a quoted name": b'steer.function.bad."f"',
    "a name of a path": b"steer.function.bad.a/b",
    "a build that is no ULID": b"steer.build.bad.web.latest",
    "a pool of two names": b"steer.build_pool.bad.pool",
    "a space of another kind": "steer.runtime.py\u00a0thon".encode(),
}


@dataclass(frozen=True, slots=True)
class Bad:
    name: str
    kind: Kind
    key: Key
    body: bytes
    path: str

    @property
    def subject(self) -> str:
        return self.kind.subject(*self.key)


def good(kind: Kind) -> bytes:
    return (GOLDEN / f"{kind.name}.json").read_bytes()


def bad_messages() -> list[Bad]:
    """Every bad body, each on a subject of its own."""
    bodies = [(name, *each) for name, each in (MALFORMED | SPECIFIC).items() if len(each[1]) < PAYLOAD]
    for kind in USERS:
        for name, (body, path) in OF_EVERY_KIND.items():
            whole = json.dumps(json.loads(good(kind)) | {path: "x"}).encode()
            bodies.append((name, kind, body or whole, path))
    bodies += [(f"megabyte {n}", subjects.ENVIRONMENT, b'{"a":"' + b"x" * (PAYLOAD - 8) + b'"}', "") for n in range(10)]
    found = []
    for number, (name, kind, body, path) in enumerate(bodies):
        first, *rest = RECORDS[kind][0]
        found.append(Bad(name, kind, (f"{first}-{number}", *rest), body, path))
    return found


@pytest.fixture
async def running(settings: Settings, bus: Bus) -> AsyncIterator[list[Running]]:
    """The four services, each leading."""
    found = []
    for service in SERVICES:  # four in one loop, with much to do: their leases must not lapse by that
        own = await buses.connect(replace(settings, lease_ttl_seconds=600), service.name)
        instance = Instance(service, own, asyncio.Event())
        found.append(Running(instance, asyncio.create_task(instance.run(), name=service.name), own))
    await eventually(lambda: all(each.leading for each in found))
    yield found
    for each in found:
        await asyncio.wait_for(each.stop(), 60)


def test_there_are_more_than_sixty_bad_messages_of_every_kind_and_each_is_refused() -> None:
    found = bad_messages()
    assert len(found) + len(MALFORMED_SUBJECTS) > 100
    assert {each.kind for each in found} == set(USERS)
    for each in found:
        with pytest.raises(InvalidRecord) as caught:
            codec.decode(each.kind, each.key, each.body)
        assert caught.value.problems[0].path == each.path, each


async def test_whatever_is_wrong_is_in_quarantine_and_what_is_good_goes_on(bus: Bus, running: list[Running]) -> None:
    bad = bad_messages()
    before = await asyncio.gather(*(bus.request(each.subject, good(each.kind), within=60) for each in bad))
    sequences = [int(json.loads(answer.data)["seq"]) for answer in before]
    for each in bad:
        await bus.publish(each.subject, each.body)
    for subject in MALFORMED_SUBJECTS.values():
        bus.send(b"PUB %b 2\r\n{}\r\n" % subject, 1)
    await _what_is_good_is_decided(bus, "during")
    rejected = Follower(bus, [subjects.REJECTED_SUBJECTS], stream=subjects.REJECTED_STREAM, start=1)
    await rejected.start()
    odd = {name: printable(subject.decode(errors="surrogateescape")) for name, subject in MALFORMED_SUBJECTS.items()}
    by_subject = await _copies(rejected, {*odd.values(), *(each.subject for each in bad)})
    for each, sequence in zip(bad, sequences, strict=True):
        copy = by_subject[each.subject]
        assert (copy.restored_sequence, copy.body_bytes, copy.kept_by) == (sequence, len(each.body), each.kind.keeper)
        assert _names(copy.problems[0], each.path), (each.name, copy.problems)
        last = await eventually(partial(_restored, bus, each.subject))
        assert last.headers[RESTORES] == str(sequence) and last.body == good(each.kind), each.name
    for name, text in odd.items():
        copy = by_subject[text]
        assert copy.restored_sequence == 0 and copy.problems, name
    await _what_is_good_is_decided(bus, "after")
    for one in running:
        assert one.leading and one.instance._faults == 0 and one.instance.follower.restarts == 0
        assert len(await records.history(bus, subjects.TERM.subject(one.instance.service.name))) == 1
    await rejected.stop()


def _names(problem: str, path: str) -> bool:
    """Whether a problem names this field, and a reason."""
    return problem.startswith(f"{path}: ") if path else bool(problem)


async def _restored(bus: Bus, subject: str) -> Any:
    message = await records.last_message(bus, subject)
    assert message is not None and not is_tombstone(message.headers)
    return message if RESTORES in (message.headers or {}) else None


async def _copies(follower: Follower, wanted: set[str]) -> dict[str, Rejection]:
    """The copy of each of these subjects, once all are there."""
    found: dict[str, Rejection] = {}
    try:
        async with asyncio.timeout(60):
            while wanted - found.keys():
                batch = await follower.next(1)
                assert not isinstance(batch, Restarted)
                copies = [Rejection.model_validate_json(message.body) for message in batch]
                found |= {copy.subject: copy for copy in copies}
    except TimeoutError:
        pytest.fail(f"no copy of {sorted(wanted - found.keys())}")
    return found


GOOD: dict[str, tuple[Kind, Key, bytes, Kind, Key]] = {
    # what is published, and what the service answers
    "scheduler": (
        subjects.DEPLOY,
        ("good", "web", "{}", ULID),
        b'{"version":"1"}',
        subjects.DEPLOYMENT,
        ("good", "web", "{}", ULID),
    ),
    "builder": (subjects.BUILD, ("good", "{}", ULID), _json(BUILD), subjects.BUILD_STATUS, ("good", "{}", ULID)),
    "pooler": (subjects.FUNCTION, ("good", "{}"), _json(FUNCTION), subjects.PLACEMENT, ("good", "{}")),
}


async def _what_is_good_is_decided(bus: Bus, name: str) -> None:
    """Each service decides about something new, whatever else it reads."""
    environment = subjects.ENVIRONMENT.subject("good", "web", name)
    await bus.request(environment, b'{"service":{"run":{"ports":[{"name":"http","container_port":80}]}}}', within=60)
    await bus.request(subjects.RELEASE.subject("good", "web", name, "1"), b'{"image":"exec:a"}', within=60)
    await bus.request(
        subjects.DOMAIN.subject("good", name),
        _json({"hostname": f"{name}.test", "environment": f"web/{name}"}),
        within=60,
    )
    for kind, key, body, answer, answer_key in GOOD.values():
        await bus.request(kind.subject(*(each.format(name) for each in key)), body, within=60)
        wanted = tuple(each.format(name) for each in answer_key)
        await eventually(partial(records.get, bus, answer, wanted), 60)
