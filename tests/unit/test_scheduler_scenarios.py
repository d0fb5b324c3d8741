"""Scenarios that users of such systems reported, told to the pure scheduler: those that no other module tells."""

from services.scheduler.decide import decide
from services.scheduler.indexes import fold
from services.scheduler.state import State
from services.scheduler.telemetry import attend
from shared import subjects
from shared.model.assignment import Assignment, Instance
from shared.service import Version
from shared.subjects import Key, Kind
from tests.unit.scheduler_world import World, request_id

SECOND = request_id(2)


def handed_over(world: World, listens: bool = True) -> None:
    """Another leader takes over: it knows what the log has last, and nothing of what was heard."""
    versions: list[Version] = [version for table in world.state.tables.values() for version in table.values()]
    world.state = State()
    for version in sorted(versions, key=lambda version: version.sequence):
        fold(world.state, version)
    if listens:
        attend(world.state, world.now)


class Watched(World):
    """Looks at every prefix of the log."""

    def publish(self, kind: Kind, key: Key, record: object) -> int:
        sequence = super().publish(kind, key, record)  # type: ignore[arg-type]
        self.most = max(getattr(self, "most", 0), len(self.there()))
        self.fewest = min(getattr(self, "fewest", 99), len(self.healthy()))
        return sequence

    def there(self) -> list[Key]:
        """What is wanted to run and may run, on nodes that are not down."""
        found = []
        for key in self.replicas("run"):
            instance = self.state.get(subjects.INSTANCE, key, Instance)
            if not self.state.node_gone(key[0]) and (instance is None or instance.state not in ("failed", "stopped")):
                found.append(key)
        return found

    def healthy(self) -> list[Key]:
        found = []
        for key, version in self.state.tables[subjects.ASSIGNMENT].items():
            instance = self.state.get(subjects.INSTANCE, key, Instance)
            alive = not self.state.node_gone(key[0])
            serving = isinstance(version.record, Assignment) and version.record.desired == "run"
            if alive and serving and instance is not None and instance.state == "healthy":
                found.append(key)
        return found

    def watch(self) -> None:
        self.most, self.fewest = len(self.there()), len(self.healthy())


def test_scenario_7_no_explosion_when_a_node_drops_in_the_middle_of_a_rollout() -> None:
    world = Watched()
    world.serving(replicas=4, nodes=4)
    world.watch()
    world.release(2)
    world.deploy(2)
    world.settle()
    world.silenced = {"n2"}
    for _ in range(10):
        world.advance(5)
        world.all_healthy()
        world.route()
    world.silenced = set()
    for _ in range(10):
        world.advance(10)
        world.cooperate(2)
    assert world.active().version == "2" and len(world.replicas("run")) == 4
    assert world.most <= 4 + 1 + 4, "the wanted, one in replacement, and one set of a deployment"


def test_scenario_8_the_deadline_fires_whoever_leads() -> None:
    world = World()
    world.serving(replicas=2)
    began = world.now
    world.release(2)
    world.deploy(2)
    world.settle()
    deadline = world.deployment(SECOND).deadline
    assert deadline is not None
    while world.now < deadline:
        handed_over(world)  # nobody leads for longer than a few seconds
        world.advance(min(7.0, (deadline - world.now).total_seconds()))
    assert world.deployment(SECOND).phase == "failed"
    assert world.deployment(SECOND).phase_since == deadline > began
    assert world.active().version == "1" and len(world.replicas("run", release=1)) == 2


def test_scenario_8_a_deadline_that_passed_while_nobody_led_fires_at_once() -> None:
    world = World()
    world.serving(replicas=2)
    world.release(2)
    world.deploy(2)
    world.settle()
    world.now = world.now.replace(year=world.now.year + 1)
    handed_over(world)
    world.settle()
    assert world.deployment(SECOND).phase == "failed"


def test_scenario_10_success_is_only_said_of_a_release_whose_replicas_serve_and_only_the_old_set_is_stopped() -> None:
    world = Watched()
    world.serving(replicas=2)
    world.watch()
    old = set(world.replicas())
    world.release(2)
    world.deploy(2)
    for _ in range(12):
        world.advance(10)
        world.cooperate(1)
        if world.deployment(SECOND).phase == "succeeded":
            break
    assert world.deployment(SECOND).phase == "succeeded"
    assert len(world.healthy()) == 2 and world.fewest >= 2
    ended = {
        change.key
        for _, change in world.log
        if isinstance(change.record, Assignment) and change.record.desired in ("drain", "stop")
    }
    assert ended == old, "what is ended is named, one by one"


def test_scenario_11_a_leader_that_has_read_the_whole_log_goes_on_where_the_other_was() -> None:
    world = World()
    world.serving(replicas=3)
    for step in ("release", "deploy", "settle", "all_healthy", "settle", "route", "agents_stop", "settle"):
        if step in ("release", "deploy"):
            getattr(world, step)(2)
        else:
            getattr(world, step)()
        stayed = world.state
        mine = decide(stayed, world.now)
        handed_over(world, listens=False)
        world.state.attended_at = stayed.attended_at
        theirs = decide(world.state, world.now)
        assert [each for each in theirs.decisions if each.about != "node"] == [
            each for each in mine.decisions if each.about != "node"
        ], step
        world.state = stayed


def test_scenario_11_a_part_of_the_log_tears_nothing_down() -> None:
    world = World()
    world.serving(replicas=3)
    versions = sorted((v for table in world.state.tables.values() for v in table.values()), key=lambda v: v.sequence)
    for share in (0.2, 0.4, 0.6, 0.8):
        state = State()
        for version in versions[: int(share * len(versions))]:
            fold(state, version)
        changes = [change for decision in decide(state, world.now).decisions for change in decision.changes]
        assert not [c for c in changes if c.kind is subjects.ASSIGNMENT and (c.record is None or _ends(c.record))]
        assert not [c for c in changes if c.record is None and c.kind is not subjects.NOTICE]


def _ends(record: object) -> bool:
    return isinstance(record, Assignment) and record.desired != "run"


def test_scenario_23_silence_is_counted_by_the_new_leader_from_when_it_listens_and_never_by_another_clock() -> None:
    world = World()
    world.nodes(3)
    world.advance(20)
    world.silenced = {"n3"}
    world.advance(25)  # suspect for the old leader, five seconds short of down
    handed_over(world)
    world.advance(9)
    assert {world.status(name).state for name in ("n1", "n2")} == {"alive"}
    assert world.status("n3").state == "suspect", "not down: this leader has listened for nine seconds only"
    world.advance(21)
    assert world.status("n3").state == "down"
