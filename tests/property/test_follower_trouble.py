"""A follower that is killed, paused, cut off or corrupted at any moment ends with the same routes as everybody else.

What is tried is what `follow_routes` does with the messages that it gets; only the server and the connection are missing.
Until the end, nothing that is given to a proxy may be anything else than a version that was published.
"""

import asyncio
from contextlib import aclosing

from hypothesis import event, given, settings
from hypothesis import strategies as st

from shared import codec, route_digest, subjects
from shared.model.route import RouteManifest
from shared.runtime.follow import Report, _Session
from shared.runtime.follower import RESTARTED, Message, Restarted
from shared.runtime.route_table import RouteVersion
from shared.service import Version
from tests.routing import World, serving

MANIFEST = subjects.ROUTE_MANIFEST.subject()
AWAY = 7
"""Messages that are stored while it is paused or cut off: more than one version."""

HISTORY = st.lists(st.sampled_from(["up", "down", "port", "domain", "undo", "promote"]), min_size=1, max_size=12)
TROUBLES = ["killed", "paused", "cut off", "away too long", "lost", "garbled", "altered", "repeated"]
TROUBLE = st.dictionaries(st.integers(0, 25), st.sampled_from(TROUBLES), min_size=1, max_size=6)
API = ("shop", "api", "production")


def log_of(history: list[str]) -> list[Message]:
    """The route records and manifests that a history leads to, in the order of the log."""
    world = serving()
    for step, what in enumerate([*history, "elsewhere"]):
        happen(world, what, step)
        world.publish()
        world.wait(100)
    kinds = {*subjects.ROUTE_KINDS, subjects.ROUTE_MANIFEST}
    return [message(version) for version in world.versions if version.kind in kinds]


def happen(world: World, what: str, step: int) -> None:
    match what:
        case "up":
            world.replica(f"web-{step + 2}")
        case "down":
            world.report("web-1", state="unhealthy")
        case "port":
            world.report("web-1", ports={"http": 30_100 + step})
        case "domain":
            world.domain_of(f"d{step % 3}", f"h{step % 3}.example.com")
        case "undo":
            world.delete(subjects.DOMAIN, "shop", f"d{step % 3}")
        case "promote":
            world.release(str(step + 2))
            world.promote(str(step + 2))
        case "elsewhere":  # writes none of the records that may have been lost before
            world.environment(API)


def message(version: Version) -> Message:
    body = b"" if version.record is None else codec.encode(version.record)
    headers = {"Steer-Operation": "delete"} if version.record is None else None
    return Message(version.kind.subject(*version.key), version.sequence, version.at, headers, body)


def load(log: list[Message]) -> list[Message]:
    """The last version of each subject, in the order of the log; of what was deleted, nothing is left."""
    last = {each.subject: each for each in log}
    return sorted((each for each in last.values() if each.body), key=lambda each: each.sequence)


def published(log: list[Message]) -> dict[int, dict[str, bytes]]:
    """By number, the records of every version."""
    found: dict[int, dict[str, bytes]] = {}
    records: dict[str, bytes] = {}
    for each in log:
        if each.subject != MANIFEST:
            records = {name: body for name, body in records.items() if name != each.subject}
            records |= {each.subject: each.body} if each.body else {}
            continue
        manifest = codec.validate(RouteManifest, each.subject, each.body)
        total = sum(route_digest.term(name, body) for name, body in records.items()) % 2**256
        assert route_digest.text(total) == manifest.digest
        found[manifest.version] = records
    return found


class Killed(Exception):
    """The process ends, at any message."""


class Ended(Exception):
    """Everything has been read, and nothing more comes."""


class Delivery:
    """The log as a follower gets it: message by message, and now and then not."""

    def __init__(self, log: list[Message], troubles: dict[int, str]) -> None:
        self._log = log
        self._troubles = troubles
        # No trouble from the last version on: whoever misses the last word knows it only by the next, or by a load.
        self._last = max(index for index, each in enumerate(log[:-1]) if each.subject == MANIFEST)
        self._anew = False
        self.at = 0
        self.caught_up = False

    def distrust(self, reason: str) -> None:
        self._anew, self.caught_up = True, False

    async def next(self, timeout: float | None) -> list[Message] | Restarted:  # noqa: ASYNC109 - see `Follower`
        if self._anew:
            self._anew = False
            return RESTARTED
        if not self.caught_up:
            self.caught_up = True
            return load(self._log[: self.at])
        if self.at == len(self._log):
            raise Ended
        trouble = self._troubles.pop(self.at, "") if self.at <= self._last else ""
        return self._suffer(trouble)

    def _suffer(self, trouble: str) -> list[Message] | Restarted:
        event(trouble or "all is well")
        nearby = self._log[self.at]
        match trouble:
            case "killed":
                raise Killed
            case "paused" | "cut off":  # what was stored meanwhile comes all at once
                begin, self.at = self.at, min(self.at + AWAY, self._last + 1)
                return self._log[begin : self.at]
            case "away too long":
                self.at = min(self.at + AWAY, self._last + 1)
                self.caught_up = False
                return RESTARTED
        self.at += 1
        match trouble:
            case "lost":
                return []
            case "garbled":
                return [nearby._replace(body=nearby.body[: len(nearby.body) // 2])]
            case "altered":
                return [nearby._replace(body=nearby.body.replace(b"30001", b"30002"))]
            case "repeated":
                return [nearby, nearby]
        return [nearby]


async def followed(delivery: Delivery) -> list[RouteVersion]:
    """Every version that a proxy is given until the end of the log, whatever happens to its process."""
    given: list[RouteVersion] = []
    while True:
        session = _Session(None, None, Report(), reload_seconds=(0, 0))
        try:
            async with aclosing(session.versions(delivery)) as versions:
                async for version in versions:
                    given.append(version)
        except Killed:
            delivery.caught_up = False
        except Ended:
            return given


@settings(max_examples=60, deadline=None)
@given(HISTORY, TROUBLE)
def test_whatever_happens_to_a_follower_it_ends_equal(history: list[str], troubles: dict[int, str]) -> None:
    log = log_of(history)
    versions = published(log)
    given = asyncio.run(followed(Delivery(log, troubles)))
    for version in given:
        assert {name: each.body for name, each in version.entries.items()} == versions.get(version.number, {})
        assert {host.hostname for host in version.hosts.values()} == set(version.hosts)
    assert given[-1].number == max(versions)
    assert len(given[-1].hosts) == sum(name.startswith("steer.route.host.") for name in versions[max(versions)])
