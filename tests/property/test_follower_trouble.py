"""A follower that is killed, paused, cut off or corrupted at any moment ends with the same routes as everybody else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shared import codec, subjects
from shared.runtime.follower import Message
from shared.runtime.route_table import RouteTable
from shared.service import Version
from tests.routing import World, serving

HISTORY = st.lists(st.sampled_from(["up", "down", "port", "domain", "undo", "promote"]), min_size=1, max_size=12)
TROUBLE = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["killed", "cut off", "lost", "garbled", "repeated"])), max_size=6
)


def log_of(history: list[str]) -> list[Message]:
    """The route records and manifests that a history leads to, in the order of the log."""
    world = serving()
    for step, what in enumerate(history):
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


def message(version: Version) -> Message:
    body = b"" if version.record is None else codec.encode(version.record)
    headers = {"Steer-Operation": "delete"} if version.record is None else None
    return Message(version.kind.subject(*version.key), version.sequence, version.at, headers, body)


def load(log: list[Message]) -> list[Message]:
    """The last version of each subject, in the order of the log."""
    last = {each.subject: each for each in log}
    return sorted(last.values(), key=lambda each: each.sequence)


class Follower:
    """Reads a log message by message, as `follow_routes` does: anew where what it holds cannot be right."""

    def __init__(self, log: list[Message]) -> None:
        self._log = log
        self.at = 0
        self.table = RouteTable()
        self.loads = 0

    def anew(self) -> None:
        self.table = RouteTable()
        self.loads += 1
        for each in load(self._log[: self.at]):
            self.table.take(each)

    def suffer(self, trouble: str) -> None:
        nearby = self._log[self.at]
        match trouble:
            case "killed":
                self.anew()
            case "cut off":  # away while three more come, which are sent when it is back
                for _ in range(min(3, len(self._log) - self.at)):
                    self.step()
            case "lost":
                self.at += 1
            case "garbled":
                self.at += 1
                self.table.take(nearby._replace(body=nearby.body[: len(nearby.body) // 2]))
            case "repeated":
                self.table.take(nearby)

    def step(self) -> None:
        self.table.take(self._log[self.at])
        self.at += 1
        if self.table.broken:
            self.anew()


@settings(max_examples=150, deadline=None)
@given(HISTORY, TROUBLE)
def test_whatever_happens_to_a_follower_it_ends_equal(history: list[str], trouble: list[tuple[int, str]]) -> None:
    log = log_of([*history, "promote"])
    expected = RouteTable()
    for each in log:
        expected.take(each)
    follower, due = Follower(log), dict(trouble)
    # No trouble from the last version on: whoever misses the last word knows it only by the next one, or by a load.
    closes = max(index for index, each in enumerate(log[:-1]) if each.subject == subjects.ROUTE_MANIFEST.subject())
    while follower.at < len(log):
        what = due.pop(follower.at, "")
        if what and follower.at <= closes:
            follower.suffer(what)
        else:
            follower.step()
    assert follower.table.verified
    mine, theirs = follower.table.version(None), expected.version(None)
    assert mine is not None and theirs is not None
    assert (mine.number, mine.digest) == (theirs.number, theirs.digest)
    assert {name: each.body for name, each in mine.entries.items()} == {
        name: each.body for name, each in theirs.entries.items()
    }
