"""Versions: what is in one, what it covers, when it goes out, and what `Routed` says."""

from datetime import timedelta

from services.routes import versions
from services.routes.decide import decide, settle, work
from services.routes.serving import MAX_ENDPOINTS
from services.routes.state import State, fold
from services.routes.written import as_written
from shared import route_digest, subjects
from shared.codec import MAX_BODY_BYTES, encode
from shared.model.domain import Domain
from shared.model.route import RouteManifest
from shared.service import MAX_BATCH, Change, Plan, Version
from tests.routing import ENV, World, serving


def changes(plan: Plan) -> list[Change]:
    return [change for decision in plan.decisions for change in decision.changes]


def written_kinds(plan: Plan) -> list[str]:
    return [change.kind.name for change in changes(plan)]


def test_an_empty_world_has_nothing_to_publish() -> None:
    assert decide(State(), World().now) == Plan()


def test_a_version_is_its_changed_records_then_routed_then_the_manifest() -> None:
    world = serving()
    world.promote("1", generation=2)
    (plan,) = world.publish()
    assert written_kinds(plan) == ["route_host", "route_host", "routed_environment", "route_manifest"]
    assert world.manifest.version == 2


def test_a_change_touches_only_the_records_that_depend_on_it() -> None:
    world = serving()
    other = ("shop", "api", "production")
    world.environment(other)
    world.release("1", env=other)
    world.promote("1", env=other)
    world.publish()
    world.replica("api-1", env=other)
    (plan,) = world.publish()
    assert [change.subject for change in changes(plan)] == [
        "steer.route.host.net.example.api-production",
        "steer.route.internal.shop.api.production",
        "steer.route.manifest",
    ]


def test_the_manifest_covers_foreign_records_only() -> None:
    world = serving()
    last_foreign = world.report("web-1", ports={"http": 30002}).sequence
    world.publish()
    assert world.manifest.covers == last_foreign


def test_a_domain_that_routes_itself_has_restored_covers_nothing() -> None:
    world = serving()
    covered = world.state.covers
    domain = world.domain_of("d", "d.example.com")
    again = domain._replace(sequence=domain.sequence + 10, restores=domain.sequence)
    fold(world.state, again)
    assert world.state.covers == domain.sequence > covered


def test_a_foreign_record_that_own_ones_have_overtaken_is_not_covered_before_it_has_come() -> None:
    world = serving()
    overtaken = world.manifest.covers + 1
    assert overtaken < len(world.versions)  # own records stand there and beyond: they were acknowledged
    domain = Domain(hostname="late.example.com", environment="web/production")
    fold(world.state, Version(subjects.DOMAIN, ("shop", "late"), overtaken, domain, world.now))
    world.publish()
    assert world.manifest.covers == overtaken


def test_the_digest_is_that_of_the_records_as_published() -> None:
    world = serving()
    world.domain_of("second", "b.example.com")
    world.publish()
    world.delete(subjects.DOMAIN, "shop", "main")
    world.publish()
    total = 0
    for (kind, key), version in world.last().items():
        if kind in subjects.ROUTE_KINDS and version.record is not None:
            total += route_digest.term(kind.subject(*key), encode(version.record))
    assert world.manifest.digest == route_digest.text(total % 2**256)


def test_what_ends_as_it_was_gives_no_version() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    world.report("web-1")
    assert world.publish() == []
    assert list(work(world.state)) == []


def test_a_report_that_changes_nothing_for_routes_is_no_work() -> None:
    world = serving()
    world.assign("web-2")
    world.publish()
    world.report("web-2", state="pulling", ports={})
    world.report("web-2", state="starting", ports={})
    assert list(work(world.state)) == []


def test_the_first_change_after_a_quiet_time_goes_out_at_once() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    assert world.look().decisions


def test_a_burst_gives_one_version_in_fifty_milliseconds() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    assert world.look().decisions
    published = world.now
    world.wait(5)
    world.report("web-1")
    plan = world.look()
    assert (plan.decisions, plan.wake_at) == ((), published + timedelta(milliseconds=50))
    world.wait(10)
    world.report("web-1", ports={"http": 30002})
    assert world.look().decisions == ()
    world.wait(35)
    assert world.look().decisions
    assert world.addresses("shop.example.com") == ["10.0.0.1:30002"]


def test_a_change_while_a_version_is_being_stored_belongs_to_the_burst_though_it_began_after_a_quiet_time() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    plan = decide(world.state, world.now)
    assert plan.decisions
    world.wait(3)
    world.report("web-1")
    for change in changes(plan):
        world.put(change.kind, change.key, change.record)
    settle(world.state, plan, world.now)
    published = world.now
    assert decide(world.state, world.now).wake_at == published + timedelta(milliseconds=50)


def test_a_change_after_twenty_quiet_milliseconds_does_not_wait_for_the_fifty() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    assert world.look().decisions
    world.wait(20)
    world.report("web-1")
    assert world.look().decisions


def test_a_report_that_nobody_waits_for_does_not_disturb_the_quiet() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    assert world.look().decisions
    world.wait(25)
    world.report("unknown-1")
    world.wait(1)
    world.report("web-1")
    assert world.look().decisions


def test_routed_says_which_active_release_was_taken_in_though_no_route_changed() -> None:
    world = serving()
    before = world.manifest
    promoted = world.promote("1").sequence
    (plan,) = world.publish()
    assert written_kinds(plan) == ["routed_environment", "route_manifest"]
    routed = world.routed()
    assert routed and (routed.active_sequence, routed.version) == (promoted, before.version + 1)
    assert world.manifest.version == routed.version
    assert world.manifest.digest == before.digest


def test_routed_names_the_drains_that_were_taken_in_and_forgets_those_that_are_gone() -> None:
    world = serving()
    first = world.assign("web-1", desired="drain").sequence
    world.publish()
    routed = world.routed()
    assert routed and routed.drains == {"web-1": first}
    world.assign("web-1", desired="stop")
    assert world.publish() == []  # what was taken in stays true
    world.delete(subjects.ASSIGNMENT, "n1", "web-1")
    world.publish()
    world.assign("web-2")
    second = world.assign("web-2", desired="drain").sequence
    world.publish()
    routed = world.routed()
    assert routed and routed.drains == {"web-2": second}


def test_a_drain_that_is_written_once_more_is_taken_in_once_more() -> None:
    world = serving()
    world.assign("web-1", desired="drain")
    world.publish()
    again = world.assign("web-1", desired="drain").sequence
    world.publish()
    routed = world.routed()
    assert routed and routed.drains == {"web-1": again}


def test_a_drain_of_a_replica_that_never_was_an_endpoint_is_taken_in() -> None:
    world = serving()
    world.assign("web-2", release="0")
    drained = world.assign("web-2", release="0", desired="drain").sequence
    world.publish()
    routed = world.routed()
    assert routed and routed.drains == {"web-2": drained}


def test_routed_stays_while_a_deleted_environment_drains_and_goes_with_its_last_assignment() -> None:
    world = serving()
    world.delete(subjects.ENVIRONMENT, *ENV)
    drained = world.assign("web-1", desired="drain").sequence
    world.promote("")
    world.publish()
    routed = world.routed()
    assert routed and routed.drains == {"web-1": drained}
    world.delete(subjects.ASSIGNMENT, "n1", "web-1")
    world.publish()
    assert world.routed() is None


def test_a_version_that_does_not_fit_in_a_batch_spans_several_and_is_closed_once() -> None:
    world = World("example.net")
    for number in range(1200):
        world.environment(("shop", f"app{number}", "production"))
    plans = world.publish()
    assert [plan.size for plan in plans] == [999, 999, 406]
    manifests = [version for version in world.versions if version.kind == subjects.ROUTE_MANIFEST]
    assert len(manifests) == 1
    assert (world.manifest.hosts, world.manifest.internal_services) == (1200, 1200)
    assert all(plan.size <= MAX_BATCH for plan in plans)


def test_what_a_leader_left_unclosed_the_next_one_closes() -> None:
    world = World("example.net")
    for number in range(600):
        world.environment(("shop", f"app{number}", "production"))
    world.look()
    assert world.record(subjects.ROUTE_MANIFEST) is None
    world.state = world.loaded()
    world.publish()
    assert world.manifest.version == 1
    assert versions.unclosed(world.state) is False


def test_a_routed_record_without_its_manifest_gets_one() -> None:
    world = serving()
    world.promote("1")
    plan = decide(world.state, world.now)
    for change in changes(plan):
        if change.kind != subjects.ROUTE_MANIFEST:
            world.put(change.kind, change.key, change.record)
    world.state = world.loaded()
    (plan,) = world.publish()
    assert written_kinds(plan) == ["route_manifest"]
    routed = world.routed()
    assert routed and world.manifest.version == routed.version == 2


def test_a_change_between_a_decision_and_its_commit_is_looked_at_again() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    plan = decide(world.state, world.now)
    world.report("web-1", ports={"http": 30007})
    for change in changes(plan):
        world.put(change.kind, change.key, change.record)
    settle(world.state, plan, world.now)
    world.wait(100)
    world.publish()
    assert world.addresses("shop.example.com") == ["10.0.0.1:30007"]


def test_records_of_another_layout_are_written_once_more() -> None:
    world = World("example.net")
    for number in range(700):
        world.environment(("shop", f"app{number}", "production"))
    world.publish()
    record = world.manifest
    world.put(subjects.ROUTE_MANIFEST, (), record.model_copy(update={"format": "older", "digest": "0" * 64}))
    world.state = world.loaded()
    plans = world.publish()
    rewritten = [change for plan in plans for change in changes(plan) if change.kind in subjects.ROUTE_KINDS]
    assert len(plans) == 2 and len(rewritten) == 1400
    assert (world.manifest.version, world.manifest.format) == (record.version + 1, versions.FORMAT)


def test_a_route_has_so_many_endpoints_that_it_fits_in_a_message() -> None:
    world = serving()
    for number in range(MAX_ENDPOINTS + 5):
        world.replica(f"{'w' * 40}-{number:010}", "n1")
    world.publish()
    host = world.host("shop.example.com")
    assert host and len(host.routes[0].endpoints) == MAX_ENDPOINTS
    assert len(encode(host)) < MAX_BODY_BYTES


def test_a_host_that_does_not_fit_in_a_message_stays_as_it_was_with_a_notice() -> None:
    world = serving()
    for number in range(MAX_ENDPOINTS):
        world.replica(f"{'w' * 40}-{number:010}", "n1")
    world.publish()
    before = world.host("shop.example.com")
    for name in ("a", "b", "c"):
        world.domain_of(name, "shop.example.com", prefix=f"/{name}")
    world.publish()
    assert world.host("shop.example.com") == before
    assert list(world.notices()) == [
        f"steer.route.host.com.example.shop would be larger than {MAX_BODY_BYTES} bytes; it stays as it was"
    ]
    for name in ("a", "b", "c"):
        world.delete(subjects.DOMAIN, "shop", name)
    world.publish()
    assert list(world.notices()) == []


def test_a_decision_tells_what_changed_and_what_led_to_it() -> None:
    world = serving()
    cause = world.replica("web-2").sequence
    (plan,) = world.publish()
    (decision,) = plan.decisions
    assert (decision.about, decision.key, decision.cause) == ("version", ("latest",), cause)
    assert decision.outcome == "version 2: 3 records"
    assert decision.reasons["records"]["steer.route.host.com.example.shop"] == "+web-2"


def test_a_version_number_never_repeats_across_leaders() -> None:
    world = serving()
    world.report("web-1", state="unhealthy")
    world.publish()
    world.state = world.loaded()
    world.report("web-1")
    world.publish()
    numbers = [version.record.version for version in world.versions if isinstance(version.record, RouteManifest)]
    assert numbers == sorted(set(numbers))


def test_the_term_of_a_record_is_over_subject_and_body() -> None:
    world = serving()
    host = world.host("shop.example.com")
    assert host is not None
    item = (subjects.ROUTE_HOST.name, subjects.host_key("shop.example.com"))
    body, term = as_written(item, host)
    assert body == encode(host) and term == route_digest.term("steer.route.host.com.example.shop", body)
