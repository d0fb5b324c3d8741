"""The follower's table: switching as a whole, the digest, what changed, the cache file, and matching a request."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from shared import codec, subjects
from shared.runtime.follower import Message
from shared.runtime.route_table import RouteTable, RouteVersion, match, read_cache, write_cache
from shared.service import Version
from tests.routing import World, serving


def message(version: Version) -> Message:
    body = b"" if version.record is None else codec.encode(version.record)
    headers = {"Steer-Operation": "delete"} if version.record is None else None
    return Message(version.kind.subject(*version.key), version.sequence, version.at, headers, body)


def followed(versions: Iterable[Version]) -> list[Message]:
    """What a follower of routes gets of a log."""
    kinds = {*subjects.ROUTE_KINDS, subjects.ROUTE_MANIFEST}
    return [message(version) for version in versions if version.kind in kinds]


def table_of(world: World) -> RouteTable:
    table = RouteTable()
    for each in followed(world.versions):
        table.take(each)
    return table


def version_of(table: RouteTable, before: RouteVersion | None = None) -> RouteVersion:
    version = table.version(before)
    assert version is not None
    return version


def test_records_are_held_back_until_their_manifest() -> None:
    world = serving()
    table = table_of(world)
    before = version_of(table)
    world.report("web-1", state="unhealthy")
    already = len(world.versions)
    world.publish()
    *records, manifest = followed(world.versions[already:])
    for each in records:
        assert not table.take(each)
        assert table.version(before) is None
    assert table.take(manifest)
    after = version_of(table, before)
    assert after.number == before.number + 1
    assert before.hosts["shop.example.com"].routes[0].endpoints  # what was given does not change
    assert after.hosts["shop.example.com"].routes[0].endpoints == ()


def test_a_version_names_what_changed_since_the_one_before() -> None:
    world = serving()
    table = table_of(world)
    first = version_of(table)
    assert first.initial and len(first.changed) == 3
    world.delete(subjects.DOMAIN, "shop", "main")
    already = len(world.versions)
    world.publish()
    for each in followed(world.versions[already:]):
        table.take(each)
    second = version_of(table, first)
    assert not second.initial
    assert second.changed == ("steer.route.host.com.example.shop",)
    assert "shop.example.com" not in second.hosts


def test_a_load_and_a_path_of_versions_end_the_same() -> None:
    world = serving()
    for port in (30002, 30003):
        world.report("web-1", ports={"http": port})
        world.wait(100)
        world.publish()
    path = version_of(table_of(world))
    loaded = RouteTable()
    for each in followed(sorted(world.last().values(), key=lambda version: version.sequence)):
        loaded.take(each)
    assert loaded.verified
    whole = version_of(loaded)
    assert (whole.number, whole.digest, whole.hosts) == (path.number, path.digest, path.hosts)
    assert loaded.version(path) is None


def test_a_load_into_an_open_version_waits_for_the_manifest_that_closes_it() -> None:
    world = serving()
    world.report("web-1", ports={"http": 30002})
    already = len(world.versions)
    world.publish()
    *records, manifest = followed(world.versions[already:])
    opened = records[0]
    last = {each.subject: each for each in [*followed(world.versions[:already]), opened]}
    table = RouteTable()
    for each in sorted(last.values(), key=lambda each: each.sequence):
        table.take(each)
    assert not table.verified and not table.broken  # the old version of a record is missing: wait
    for each in [*records[1:], manifest]:
        table.take(each)
    assert table.verified


def test_a_record_that_was_missed_is_found_by_the_digest() -> None:
    world = serving()
    table = RouteTable()
    for each in followed(world.versions)[1:]:
        table.take(each)
    assert table.broken and not table.verified


def test_a_record_that_cannot_be_read_counts_but_routes_nothing() -> None:
    world = serving()
    table = table_of(world)
    bad = Message("steer.route.host.com.example.bad", 10_000, world.now, None, b'{"hostname": 7}')
    table.take(bad)
    assert table.version(version_of(table)) is None
    table.take(message(world.last()[subjects.ROUTE_MANIFEST, ()]))
    assert not table.verified  # the writer's digest does not count it
    assert "bad.example.com" not in version_of(table).hosts


def test_the_cache_gives_the_same_version_back(tmp_path: Path) -> None:
    version = version_of(table_of(serving()))
    path = tmp_path / "routes.json"
    write_cache(path, version)
    found = read_cache(path)
    assert found is not None and found.initial
    assert (found.number, found.digest, found.hosts) == (version.number, version.digest, version.hosts)
    assert [each.name for each in tmp_path.iterdir()] == ["routes.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b'{"version":1,"digest":"x","records":[]}'])
def test_a_cache_that_is_no_cache_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "routes.json"
    path.write_bytes(content)
    assert read_cache(path) is None


def test_a_cache_whose_records_were_altered_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    write_cache(path, version_of(table_of(serving())))
    content = json.loads(path.read_text())
    subject = "steer.route.host.com.example.shop"
    content["records"][subject] = content["records"][subject].replace("30001", "30009")
    path.write_text(json.dumps(content))
    assert read_cache(path) is None
    assert read_cache(tmp_path / "none.json") is None


@pytest.fixture(scope="module")
def routed() -> RouteVersion:
    world = serving()
    world.domain_of("api", "shop.example.com", prefix="/api")
    world.domain_of("v2", "shop.example.com", prefix="/api/v2")
    world.domain_of("any", "*.example.com")
    world.domain_of("only", "only.example.com", prefix="/only")
    world.publish()
    return version_of(table_of(world))


@pytest.mark.parametrize(
    ("host", "path", "domain"),
    [
        ("shop.example.com", "/", "shop/main"),
        ("shop.example.com", "/api", "shop/api"),
        ("shop.example.com", "/api/", "shop/api"),
        ("shop.example.com", "/apix", "shop/main"),
        ("shop.example.com", "/api/v2/items", "shop/v2"),
        ("shop.example.com", "/api/v22", "shop/api"),
        ("SHOP.example.com:8443", "/api", "shop/api"),
        ("shop.example.com.", "/", "shop/main"),
        ("other.example.com", "/api", "shop/any"),
        ("only.example.com", "/only/x", "shop/only"),
        ("only.example.com", "/else", "shop/any"),
        ("web-production.example.net", "/", ""),
    ],
)
def test_a_request_finds_its_route(routed: RouteVersion, host: str, path: str, domain: str) -> None:
    route = match(routed, host, path)
    assert route is not None and route.domain == domain


@pytest.mark.parametrize("host", ["example.com", "a.b.example.com", "", "[::1]:80", "127.0.0.1"])
def test_a_request_for_a_host_that_is_not_routed_finds_none(routed: RouteVersion, host: str) -> None:
    assert match(routed, host, "/") is None
