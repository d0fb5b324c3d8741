"""Each role may do what it has to, and nothing else: tried on a server that `steer server config` has set up."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.cli.security import EVERY_STREAM, SERVICES
from shared import subjects
from shared.errors import ConfigurationError
from shared.model.node import NodeControl
from shared.runtime import bus as buses
from shared.runtime import records, streams
from shared.runtime.bus import Bus
from shared.runtime.follower import Follower
from shared.runtime.jetstream import ApiError, api
from shared.runtime.messages import send, store
from shared.subjects import KINDS, Key, Kind, Owner
from tests.integration.running import loaded
from tests.integration.secured import Secured, denied
from tests.wire.examples import RECORDS

ROLES = (
    *("scheduler", "pooler", "builder", "routes", "sweeper", "operator", "user", "viewer"),
    *("agent.n1", "proxy.edge", "worker.default.w0", "scaler.default"),
)
DOERS = {
    "agent.n1": (Owner.AGENT, ("n1",)),
    "proxy.edge": (Owner.PROXY, ("edge",)),
    "worker.default.w0": (Owner.BUILD_WORKER, ("default", "w0")),
    "scaler.default": (Owner.BUILD_WORKER, ("default",)),
}
INBOX = "_INBOX.UAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA.x"


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    secured = Secured(tmp_path / "bus")
    secured.configure("--node", "n1", "--proxy", "edge", "--worker", "default/w0", "--scaler", "default")
    secured.start()
    yield secured
    await secured.stop()


@pytest.fixture
async def made(secured: Secured) -> Secured:
    """The same with its streams, made by the operator."""
    result = await secured.steer("operator", "server", "streams")
    assert result.code == 0, result.err
    return secured


def may_write(role: str, kind: Kind, key: Key) -> bool:
    """The rules, told once more and in other words."""
    if kind.owner is Owner.EVERY_SERVICE:
        return key[0] == role
    if role in DOERS:
        owner, names = DOERS[role]
        return kind.owner is owner and key[: len(names)] == names
    if role == "scheduler" and kind is subjects.INSTANCE:
        return True  # of a node that was taken out of service
    if kind.owner is Owner.USERS:
        return role in ("user", "operator", kind.keeper)
    if kind is subjects.NODE:
        return role == "operator"
    return kind.owner.value == role


def keys_of(kind: Kind) -> list[Key]:
    """Keys that begin with each name that some role has, and one of a stranger."""
    key = RECORDS[kind][0]
    if kind.owner is Owner.EVERY_SERVICE:
        return [(service.name, *key[1:]) for service in SERVICES]
    names: list[Key] = [("n1",), ("n2",), ("edge",), ("default", "w0"), ("default", "w1"), ("other", "w0")]
    if kind.owner not in {owner for owner, _ in DOERS.values()}:
        return [key]
    return [(*name, *key[len(name) :]) for name in names if len(name) <= len(key)]


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_writes_the_kinds_that_are_its_own_and_no_other(secured: Secured, role: str) -> None:
    bus = await secured.bus(role)
    rules = {kind.subject(*key): may_write(role, kind, key) for kind in KINDS for key in keys_of(kind)}
    refused = await denied(bus, tuple(rules))
    assert refused == {subject for subject, allowed in rules.items() if not allowed}


CHANGES = tuple(
    f"$JS.API.{verb}"
    for name in EVERY_STREAM
    for verb in (
        *(f"STREAM.{each}.{name}" for each in ("DELETE", "MSG.DELETE", "RESTORE", "SNAPSHOT", "LEADER.STEPDOWN")),
        *(f"STREAM.PEER.REMOVE.{name}", f"CONSUMER.DELETE.{name}.c", f"CONSUMER.DURABLE.CREATE.{name}.c"),
        f"CONSUMER.MSG.NEXT.{name}.c",
    )
)
PURGES = tuple(f"$JS.API.STREAM.PURGE.{name}" for name in EVERY_STREAM)
MAKES = tuple(f"$JS.API.STREAM.{verb}.{name}" for name in EVERY_STREAM for verb in ("CREATE", "UPDATE"))
FOREIGN = (
    *(
        "$JS.API.STREAM.CREATE.OTHER",
        "$JS.API.STREAM.DELETE.OTHER",
        "$JS.API.META.LEADER.STEPDOWN",
        "$SYS.REQ.SERVER.PING",
    ),
    *("steer.unknown.a", "steer.term.nobody", "$KV.steer_leases.nobody", "$KV.other.a", "other"),
)


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_deletes_a_stream_the_keeper_purges_the_log_and_the_operator_makes_streams(
    secured: Secured, role: str
) -> None:
    bus = await secured.bus(role)
    allowed: set[str] = set()
    if role == "scheduler":
        allowed = {f"$JS.API.STREAM.PURGE.{subjects.STREAM}"}
    elif role == "operator":
        allowed = set(MAKES)
    every = (*CHANGES, *PURGES, *MAKES, *FOREIGN)
    assert await denied(bus, every) == set(every) - allowed


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_listens_where_others_are_answered_and_only_services_answer(secured: Secured, role: str) -> None:
    bus = await secured.bus(role)
    is_service = role in {service.name for service in SERVICES}
    others = ("_INBOX.>", INBOX, ">", "steer.>", "steer.environment.>", "$JS.>", "$KV.>", "steer.api.nobody.place")
    assert await denied(bus, subscribe=others) == set(others)
    assert await denied(bus, (INBOX,)) == (set() if is_service else {INBOX})
    asked = {f"steer.api.{each.name}.*": each.name for each in SERVICES}
    assert await denied(bus, subscribe=tuple(asked)) == {subject for subject, name in asked.items() if name != role}


ELSEWHERE: dict[str, tuple[str, ...]] = {
    "agent.n1": ("steer.live.node.n2", "steer.live.proxy.n1", "steer.api.scheduler.place", "steer.log.build.a.b.c"),
    "proxy.edge": (
        "steer.live.proxy.other",
        "steer.live.node.edge",
        "steer.snapshot.routes",
        "steer.api.builder.lease",
    ),
    "worker.default.w0": ("steer.live.build.default.w1", "steer.live.build.other.w0", "steer.api.builder.lease"),
    "scaler.default": ("steer.live.build.other.w0", "steer.live.node.n1", "steer.api.builder.release"),
    "sweeper": ("steer.live.node.n1", "steer.api.scheduler.place", "steer.snapshot.routes"),
    "user": ("steer.live.node.n1", "steer.rejected.steer.environment.a.b.c", "steer.snapshot.routes", "$SRV.PING"),
    "viewer": ("steer.api.builder.lease", "steer.api.builder.release", "steer.live.node.n1", "steer.log.build.a.b.c"),
    "scheduler": ("$KV.steer_leases.routes", "steer.snapshot.routes", "steer.rejected.steer.domain.a.b"),
    "routes": ("$KV.steer_leases.scheduler", "steer.live.proxy.edge", "steer.rejected.steer.environment.a.b.c"),
    "pooler": ("steer.live.node.n1", "steer.snapshot.routes", "$KV.steer_leases.builder"),
    "builder": ("steer.log.build.a.b.c", "steer.rejected.steer.function.a.b", "$KV.steer_leases.pooler"),
    "operator": ("steer.live.node.n1", "$KV.steer_leases.scheduler", "steer.rejected.steer.domain.a.b"),
}


@pytest.mark.parametrize("role", ROLES)
async def test_what_is_not_the_log_is_not_open_to_strangers_either(secured: Secured, role: str) -> None:
    bus = await secured.bus(role)
    assert await denied(bus, ELSEWHERE[role]) == set(ELSEWHERE[role])


def create(consumer: str, *filters: str, token: str = "", **config: Any) -> tuple[str, dict[str, Any]]:
    """The request for a consumer; `token` is the filter in its subject."""
    body: dict[str, Any] = {"name": consumer, "ack_policy": "none", "mem_storage": True, **config}
    body |= {"filter_subject": filters[0]} if len(filters) == 1 else {"filter_subjects": list(filters)}
    subject = f"CONSUMER.CREATE.{subjects.STREAM}.{consumer}" + (f".{token}" if token else "")
    return subject, {"stream_name": subjects.STREAM, "config": body, "action": "create"}


OWN_FILTER = {
    "agent.n1": "steer.assignment.n1.*",
    "proxy.edge": "steer.route.>",
    "worker.default.w0": "steer.build_order.default.w0",
    "scaler.default": "steer.worker_scale.default",
    "sweeper": "steer.image_sweep.>",
}


@pytest.mark.parametrize("role", OWN_FILTER)
async def test_a_doer_reads_what_is_meant_for_it_and_nothing_else(made: Secured, role: str) -> None:
    bus, own = await made.bus(role), OWN_FILTER[role]
    follower = Follower(bus, [own], name="mine")
    await follower.start()
    await loaded(follower)
    await follower.stop()
    for filters, token in (
        (("steer.assignment.n2.*",), "steer.assignment.n2.*"),
        (("steer.>",), "steer.>"),
        (("steer.environment.>",), "steer.environment.>"),
        (("steer.environment.>",), ""),
        ((own, "steer.environment.>"), ""),
    ):
        subject, _ = create("spy", *filters, token=token)
        assert await denied(bus, (f"$JS.API.{subject}",)) == {f"$JS.API.{subject}"}
    for filters in (("steer.environment.>",), (own, "steer.environment.>")):
        with pytest.raises(ApiError):  # the filter in the body is not the one in the subject
            await api(bus, *create("spy", *filters, token=own))
    reads = (
        f"$JS.API.STREAM.MSG.GET.{subjects.STREAM}",
        f"$JS.API.DIRECT.GET.{subjects.STREAM}",
        f"$JS.API.DIRECT.GET.{subjects.STREAM}.steer.node.n2",
        f"$JS.API.DIRECT.GET.{subjects.STREAM}.steer.environment.shop.web.production",
        f"$JS.API.DIRECT.GET.{subjects.LIVE_STREAM}.steer.live.node.n1",
    )
    assert await denied(bus, reads) == set(reads)


async def test_a_consumer_that_delivers_to_the_api_changes_nothing(made: Secured) -> None:
    """Who creates a consumer names where the server delivers, and no permission holds the server back."""
    user, agent = await made.bus("user"), await made.bus("agent.n1")
    scheduler = await made.bus("scheduler")
    await records.put(scheduler, *_record(subjects.ASSIGNMENT, "n1"))
    await records.put(user, subjects.NODE_CONTROL, ("n1",), NodeControl())
    own = OWN_FILTER["agent.n1"]
    for number, target in enumerate((*PURGES, *(each for each in CHANGES if ".STREAM.DELETE" in each))):
        await api(agent, *create(f"aimed-{number}", own, token=own, deliver_subject=target))
    await records.put(scheduler, *_record(subjects.ASSIGNMENT, "n1"))
    await scheduler.nc.flush()
    info = await api(user, f"STREAM.INFO.{subjects.STREAM}")
    assert info["state"]["messages"] == 3


def _record(kind: Kind, *names: str) -> tuple[Kind, Key, Any]:
    key, record = RECORDS[kind]
    return kind, (*names, *key[len(names) :]), record


async def test_a_build_worker_does_all_that_it_does(made: Secured) -> None:
    user, bus = await made.bus("user"), await made.bus("worker.default.w0")
    await records.put(user, *_record(subjects.BUILD_POOL, "default"))
    names = ("default", "w0")
    for kind in (subjects.BUILD_WORKER, subjects.BUILD_REPORT):
        await records.put(bus, *_record(kind, *names))
        version = await records.get_own(bus, *_record(kind, *names)[:2])
        assert version is not None and version.record is not None
    assert len(await records.load(bus, [subjects.BUILD_REPORT.subject(*names, "*")])) == 1
    assert (await records.get_own(bus, subjects.BUILD_POOL, ("default",))) is not None
    await send(bus, subjects.live_build(*names), b"{}")
    await store(bus, subjects.build_log("shop", "web", "b"), b"{}", "1")


async def test_a_viewer_reads_everything_and_applies_nothing(made: Secured) -> None:
    manifest = "kind: NodeControl\nname: n1\nschedulable: false\n"
    with capture_logs():
        refused = await made.steer("viewer", "apply", "-f", "-", stdin=manifest)
    assert refused.code != 0
    assert (await made.steer("user", "apply", "-f", "-", stdin=manifest)).code == 0
    assert "schedulable: false" in (await made.steer("viewer", "get", "node_control", "n1")).out
    bus = await made.bus("viewer")
    for stream in EVERY_STREAM:
        assert (await api(bus, f"STREAM.INFO.{stream}"))["config"]["name"] == stream
        assert await follow_all(bus, stream) == (1 if stream == subjects.STREAM else 0)


async def follow_all(bus: Bus, stream: str) -> int:
    info = await api(bus, f"STREAM.INFO.{stream}")
    follower = Follower(bus, info["config"]["subjects"], stream=stream, start=1)
    await follower.start()
    await loaded(follower)
    await follower.stop()
    return int(info["state"]["messages"])


async def test_services_find_the_streams_made_and_do_not_make_them(made: Secured) -> None:
    bus = await made.bus("pooler")
    await streams.ensure(bus)


async def test_a_foreign_key_is_refused(secured: Secured, tmp_path: Path) -> None:
    other = Secured(tmp_path / "other")
    other.configure()
    with pytest.raises(ConfigurationError, match="refuses the credentials"):
        await secured.bus("user", nats_nkey=other.settings("user").nats_nkey)
    with pytest.raises(ConfigurationError):
        await secured.bus("user", nats_nkey="")


async def test_a_seed_that_is_none_is_told(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "seed").write_text("SUABC")
    with pytest.raises(ConfigurationError, match="holds no seed"):
        await secured.bus("user", nats_nkey=str(tmp_path / "seed"))


async def test_with_tls_the_server_is_known_by_its_authority(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "bus", tls=True)
    secured.configure()
    secured.start()
    bus = await secured.bus("operator")
    await streams.ensure(bus)
    assert (await bus.request("$JS.API.INFO", within=60)).data
    for changes in ({"tls_ca": ""}, {"tls_ca": "", "nats_url": secured.url.replace("tls://", "nats://")}):
        with pytest.raises(ConfigurationError, match="not trusted"):
            await buses.connect(secured.settings("operator", **changes), "test", patience=60)
    await secured.stop()
