"""The histories that the suite starts from: each breaks a plausible design (RELIABILITY.md)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from shared.model.assignment import Assignment
from shared.model.assignment import Instance as InstanceRecord
from shared.model.deployment import Deployment
from shared.model.environment import Environment
from shared.model.node import NodeStatus
from shared.model.route import Routed, RouteManifest
from shared.runtime import encode
from shared.subjects import (
    ACTIVE,
    ASSIGNMENT,
    DEPLOY,
    DEPLOYMENT,
    ENVIRONMENT,
    INSTANCE,
    NODE_STATUS,
    NOTICE,
    ROUTE_MANIFEST,
    ROUTED_ENVIRONMENT,
    TERM,
)

from .bus import Answer
from .interpreter import Instance
from .invariants import Violation
from .story import WEB, Story, environment
from .surroundings import NO_FLAWS, Flaws
from .users import ENVIRONMENTS
from .wire import Message, put

BAD_BODIES = (b"", b"{", b'{"nonsense": 1}', b"\xff\xfe", b'{"replicas": {"min": "two"}}')


def test_a_bad_version_that_is_last_at_the_load_does_not_rule() -> None:
    story = Story()
    story.serving(2)
    story.stop_all("scheduler")
    for body in BAD_BODIES:
        story.log.publish(Message(ENVIRONMENT.subject(*WEB), body))
    story.start_all()
    story.world.converge()
    restored = story.log.versions_of(ENVIRONMENT.subject(*WEB))[-1]
    assert story.log.read(restored).record == environment(2)
    assert encode.RESTORES in restored.headers
    assert story.healthy() == 2


def test_a_users_correction_wins_over_the_restoring_of_what_was_there() -> None:
    story = Story()
    story.serving(2)
    story.log.publish(Message(ENVIRONMENT.subject(*WEB), b"{"))
    story.put(3)
    story.world.converge()
    assert story.view.get(ENVIRONMENT, WEB, Environment) == environment(3)
    assert story.healthy() == 3


def test_a_flood_of_bad_versions_leaves_the_good_one_in_force() -> None:
    story = Story()
    story.serving(2)
    for number in range(300):
        story.log.publish(Message(ENVIRONMENT.subject(*WEB), BAD_BODIES[number % len(BAD_BODIES)]))
        if number % 50 == 0:
            story.run(0.02)
    story.world.converge()
    assert story.view.get(ENVIRONMENT, WEB, Environment) == environment(2)
    assert story.healthy() == 2


def test_a_bad_record_where_there_never_was_one_becomes_a_tombstone() -> None:
    story = Story()
    subject = ENVIRONMENT.subject("shop", "unheard-of", "production")
    story.log.publish(Message(subject, b"{"))
    story.world.converge()
    last = story.log.versions_of(subject)[-1]
    assert encode.is_tombstone(last.headers)
    assert last.headers[encode.RESTORES] == "0"


@pytest.mark.parametrize("lands_after_seconds", [1.9, 2.5, 6.0])
def test_a_commit_of_unknown_outcome_that_lands_late_is_seen_or_refused(lands_after_seconds: float) -> None:
    """It lands before the new term, and is known when that begins; or after it, and the fence refuses it."""
    story = Story()
    story.serving(2)
    sent = _delay_the_next_commit(story, lands_after_seconds)
    story.deploy()
    story.until(lambda: bool(sent))
    story.world.converge()
    assert story.healthy() == 2
    assert len(story.log.versions_of(TERM.subject("scheduler"))) == 2, "an unknown outcome ends the term"


def _delay_the_next_commit(story: Story, seconds: float) -> list[int]:
    """The scheduler's next batch lands so late, and its answer never comes; what was last when it was sent."""
    sent: list[int] = []

    def fate(messages: Sequence[Message]) -> float | None:
        if sent or len(messages) < 3 or messages[0].headers.get(encode.SERVICE) != "scheduler":
            return None
        sent.append(story.log.last_sequence)
        return seconds

    story.world.bus.fate = fate
    return sent


def test_a_replicated_log_refuses_concurrent_checks_and_the_leader_tries_again() -> None:
    story = Story(replicated=True)
    story.serving(2)
    leader = story.world.leader("scheduler")
    refusals = []

    def rival(answer: Answer) -> None:
        if answer is not None and "error" in answer:
            refusals.append(answer["error"]["err_code"])

    for key in ENVIRONMENTS[:3]:
        story.put(2, key)
        story.deploy(key)
    for _ in range(200):
        fenced = put(NOTICE, ("scheduler", "rival", "x"), None)
        headers = {encode.EXPECTED: str(leader.term), encode.EXPECTED_SUBJECT: TERM.subject("scheduler")}
        story.world.bus.request([Message(fenced.subject, b"", {**fenced.headers, **headers})], rival)
        story.run(0.002)
    assert set(refusals) == {10164}
    story.world.converge()
    assert [story.healthy(key) for key in ENVIRONMENTS[:3]] == [2, 2, 2]


def test_a_request_that_is_published_again_long_after_its_deployment_was_trimmed_never_starts() -> None:
    story = Story()
    request = story.serving(1)
    old = story.view.version(DEPLOY, request)
    assert old is not None
    story.log.publish(put(ENVIRONMENT, WEB, None))
    story.until(lambda: story.view.version(DEPLOYMENT, request).record is None)  # type: ignore[union-attr]
    story.world.converge()
    story.put(1)
    story.log.publish(put(DEPLOY, request, old.record))
    story.world.converge()
    assert story.view.get(DEPLOYMENT, request, Deployment) is None
    assert not story.view.replicas(WEB)
    story.deploy()
    story.world.converge()
    assert story.healthy() == 1


def test_a_replica_whose_slot_was_given_to_another_is_served_no_more_although_it_still_says_healthy() -> None:
    story = Story()
    story.serving(2)
    agent = next(agent for agent in story.world.agents if agent.replicas)
    old = next(iter(agent.replicas))
    agent.cut_off = True
    story.until(lambda: story.view.lost(agent.name))
    story.until(lambda: story.healthy() == 2)
    story.run(5)
    instance = story.view.get(INSTANCE, (agent.name, old), InstanceRecord)
    assert instance is not None and instance.state == "healthy"
    assert old not in story.endpoints() and len(story.endpoints()) == 2
    agent.cut_off = False
    story.until(lambda: old not in agent.replicas)
    story.world.converge()
    assert old not in story.endpoints() and len(story.endpoints()) == 2
    status = story.view.get(NODE_STATUS, (agent.name,), NodeStatus)
    assert status is not None and status.state == "alive"


def test_a_late_report_about_an_assignment_that_is_gone_changes_nothing() -> None:
    story = Story()
    story.serving(1)
    (key,) = story.view.replicas(WEB)
    late = story.view.version(INSTANCE, key)
    assert late is not None
    story.deploy()
    story.world.converge()
    assert key not in story.view.replicas(WEB)
    story.log.publish(put(INSTANCE, key, late.record))
    story.world.converge()
    assert key[1] not in story.endpoints()
    assert story.healthy() == 1


def test_a_route_version_that_was_decided_before_a_promotion_does_not_count_as_having_taken_it_in() -> None:
    """Routes decides, is stopped, and sends after the promotion: the sequence is higher, what it covers is not."""
    story = Story()
    story.serving(1)
    routes = story.world.leader("routes")
    _stop_the_standby_of(routes, story)
    old = set(story.endpoints())
    story.deploy()
    story.until(lambda: _phase(story) == "healthchecking")
    story.world.users.domain("site", WEB)
    story.until(lambda: routes.in_flight)
    routes.pause()
    story.until(lambda: _phase(story) == "draining_old")
    promoted = story.view.version(ACTIVE, WEB)
    assert promoted is not None
    routes.resume()
    story.until(lambda: story.log.last_of(ROUTE_MANIFEST.subject()) > promoted.sequence)
    manifest = story.log.current(ROUTE_MANIFEST)[()]
    assert isinstance(manifest, RouteManifest) and manifest.covers < promoted.sequence
    routed = story.view.get(ROUTED_ENVIRONMENT, WEB, Routed)
    assert routed is not None and routed.active_sequence < promoted.sequence
    assert set(story.endpoints()) == old
    story.start_all()
    story.world.converge()
    assert not old & set(story.endpoints())


def _stop_the_standby_of(leader: Instance[Any], story: Story) -> None:
    """Nobody takes over while the leader is stopped: what it has decided is stored when it goes on."""
    for instance in story.world.instances:
        if instance.service.name == leader.service.name and instance is not leader:
            instance.crash()


def _phase(story: Story) -> str:
    return list(story.view.all(DEPLOYMENT, Deployment).values())[-1].phase


def test_a_purge_by_a_leader_that_was_stopped_for_a_while_leaves_what_was_written_since() -> None:
    """It had found a tombstone that nobody needs; meanwhile the environment is there again."""
    story = Story()
    story.serving(1)
    story.log.publish(put(ENVIRONMENT, WEB, None))
    story.world.converge()
    tombstone = story.log.last_of(ENVIRONMENT.subject(*WEB))
    story.put(2)
    story.deploy()
    story.world.converge()
    story.log.purge(ENVIRONMENT.subject(*WEB), tombstone + 1)
    story.stop_all("scheduler")
    story.start_all()
    story.world.converge()
    assert story.view.get(ENVIRONMENT, WEB, Environment) == environment(2)
    assert story.healthy() == 2


def _two_leaders(flaws: Flaws = NO_FLAWS) -> Story:
    """A leader is stopped in the middle of a rollout, with a commit in its hands; another finishes the rollout."""
    story = Story(flaws=flaws)
    story.put(6)
    story.world.timeline.run(5)
    first = story.world.leader("scheduler")
    story.deploy()
    story.until(lambda: first.in_flight)
    first.pause()
    story.until(
        lambda: any(i.leading for i in story.world.instances if i.service.name == "scheduler" and i is not first)
    )
    story.until(lambda: story.healthy() == 6)
    first.resume()
    story.run(5)
    return story


def test_what_a_deposed_leader_still_sends_is_refused() -> None:
    story = _two_leaders()
    story.world.converge()
    assert story.healthy() == 6
    assert len(story.view.replicas(WEB)) == 6


def test_without_the_fence_a_deposed_leader_breaks_the_invariants() -> None:
    with pytest.raises(Violation, match="is of term"):
        _two_leaders(Flaws(fence=False))


def test_a_leader_that_stops_cleanly_is_followed_at_once() -> None:
    story = Story()
    story.serving(1)
    first = story.world.leader("scheduler")
    before = story.world.timeline.now
    first.stop()
    story.until(lambda: any(i.leading for i in story.world.instances if i.service.name == "scheduler"))
    assert story.world.timeline.now - before < timedelta(seconds=1.5)


def test_an_election_marks_no_node_down() -> None:
    story = Story()
    story.serving(2)
    for _ in range(3):
        story.world.leader("scheduler").crash()
        story.run(9)
        story.start_all()
        story.run(5)
    assert _states_of_nodes(story) == {"alive"}


def test_a_leader_that_leads_again_has_heard_nobody_in_between_and_marks_no_node_down() -> None:
    story = Story()
    story.serving(2)
    first = story.world.leader("scheduler")
    first.pause()
    story.run(60)
    first.resume()
    story.run(5)
    second = story.world.leader("scheduler")
    assert second is not first
    second.crash()
    story.until(lambda: first.leading)
    story.run(20)
    assert _states_of_nodes(story) == {"alive"}


def test_a_jump_of_the_servers_clock_makes_nobody_silent() -> None:
    """Of a stream whose leader moves to a server with another clock: heartbeats are as fresh as they were."""
    story = Story()
    story.serving(2)
    before = story.endpoints()
    story.world.timeline.jump_server(60)
    story.put(2, ENVIRONMENTS[1])
    story.run(5)
    assert _states_of_nodes(story) == {"alive"}
    assert story.endpoints() == before


def _states_of_nodes(story: Story) -> set[str]:
    """Every state that any node was ever held to be in."""
    records = [
        story.log.read(stored).record
        for agent in story.world.agents
        for stored in story.log.versions_of(NODE_STATUS.subject(agent.name))
    ]
    return {record.state for record in records if isinstance(record, NodeStatus)}


def test_a_workload_that_waits_for_room_is_placed_when_another_leaves() -> None:
    story = Story(cpu_millis=200)
    story.serving(6)
    story.put(2, ENVIRONMENTS[1])
    story.deploy(ENVIRONMENTS[1])
    story.run(20)
    assert story.healthy(ENVIRONMENTS[1]) == 0
    story.log.publish(put(ENVIRONMENT, WEB, None))
    story.until(lambda: story.healthy(ENVIRONMENTS[1]) == 2)
    story.world.converge()


def test_assignments_do_not_move_while_nothing_happens() -> None:
    story = Story()
    story.serving(3)
    before = story.log.last_sequence
    story.run(600)
    after = [stored for stored in story.log.messages(before) if stored.kind in (ASSIGNMENT, DEPLOYMENT, ROUTE_MANIFEST)]
    assert after == []
    assert all(isinstance(a, Assignment) and a.desired == "run" for a in story.view.replicas(WEB).values())
