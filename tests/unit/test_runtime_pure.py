"""The pure parts of the runtime: clock, sequences, answers, reactions, messages, and what is done about bad ones."""

from datetime import UTC, datetime, timedelta

import nats.errors
import pytest

from shared import subjects
from shared.errors import Unavailable
from shared.model.node import NodeControl
from shared.model.service import DecisionRecord
from shared.runtime import encode, reactions
from shared.runtime.answers import NotStored, Refused, Stored, TermLost, Unknown, judge
from shared.runtime.clock import ServiceClock
from shared.runtime.consumer import Message
from shared.runtime.encode import Outgoing
from shared.runtime.quarantine import notice_key, plan_restoration, rejection, restoring
from shared.runtime.reactions import Reaction
from shared.runtime.sequences import Sequences
from shared.service import Change, Decision, Plan
from shared.subjects import NODE_CONTROL

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class TestTheClock:
    def test_it_runs_from_its_anchor_by_the_monotonic_clock(self) -> None:
        clock = ServiceClock()
        clock.anchor(NOON, 100.0)
        assert clock.now(102.5) == NOON + 2.5 * SECOND

    def test_it_is_never_behind_what_was_received(self) -> None:
        clock = ServiceClock()
        clock.anchor(NOON, 100.0)
        clock.received(NOON + 5 * SECOND, 101.0)
        assert clock.now(101.0) == NOON + 5 * SECOND
        assert clock.now(102.0) == NOON + 6 * SECOND

    def test_an_old_timestamp_does_not_move_it(self) -> None:
        clock = ServiceClock()
        clock.anchor(NOON, 100.0)
        clock.received(NOON - 5 * SECOND, 101.0)
        assert clock.now(101.0) == NOON + SECOND

    def test_a_new_anchor_does_not_put_it_behind_what_was_received(self) -> None:
        clock = ServiceClock()
        clock.received(NOON + 5 * SECOND, 100.0)
        clock.anchor(NOON, 100.0)
        assert clock.now(101.0) == NOON + 5 * SECOND

    def test_it_says_how_long_to_sleep(self) -> None:
        clock = ServiceClock()
        clock.anchor(NOON, 100.0)
        assert clock.seconds_until(NOON + 3 * SECOND, 101.0) == 2
        assert clock.seconds_until(NOON - 3 * SECOND, 101.0) == 0


class TestSequences:
    def test_only_a_higher_version_is_news(self) -> None:
        sequences = Sequences()
        assert sequences.accept("a", 5)
        assert not sequences.accept("a", 5)
        assert not sequences.accept("a", 4)
        assert sequences.accept("a", 6)
        assert sequences.accept("b", 4)

    def test_what_is_ahead_of_the_log_is_left_out_when_it_comes_and_so_is_what_is_older(self) -> None:
        sequences = Sequences()
        sequences.received(10)
        assert sequences.accept("a", 13)
        sequences.received(11)
        assert not sequences.accept("a", 11)
        sequences.received(13)
        assert not sequences.accept("a", 13)

    def test_what_the_log_has_passed_is_no_news_and_is_not_remembered(self) -> None:
        sequences = Sequences()
        for sequence in range(1, 100):
            assert sequences.accept(f"subject {sequence}", sequence)
            sequences.received(sequence)
        assert not sequences.accept("subject 5", 5)
        assert len(sequences._ahead) == 1

    def test_what_was_read_reaches_over_own_records_that_follow_without_a_gap(self) -> None:
        sequences = Sequences()
        sequences.received(10)
        sequences.acknowledged(range(11, 13))
        assert sequences.read_sequence == 12

    def test_what_was_read_stops_before_what_others_may_have_written(self) -> None:
        sequences = Sequences()
        sequences.received(10)
        sequences.acknowledged(range(12, 14))
        assert sequences.read_sequence == 10
        sequences.received(11)
        assert sequences.read_sequence == 13


class TestAnswers:
    def test_the_sequences_of_a_batch_end_at_the_acknowledged_one(self) -> None:
        outcome = judge({"stream": "STEER", "seq": 12}, 3, has_expectations=False)
        assert isinstance(outcome, Stored)
        assert list(outcome.sequences) == [10, 11, 12]

    @pytest.mark.parametrize(
        ("code", "expectations", "outcome"),
        [
            (10071, False, TermLost),
            (10071, True, Refused),
            (10164, False, NotStored),
            (10164, True, NotStored),
            (10210, False, NotStored),
            (10077, False, NotStored),
            (10199, True, NotStored),
        ],
    )
    def test_each_error_has_one_meaning(self, code: int, expectations: bool, outcome: type) -> None:
        assert type(judge({"error": {"code": 400, "err_code": code}}, 1, expectations)) is outcome

    @pytest.mark.parametrize(
        ("outcome", "reaction"),
        [
            (Stored(1, 1), Reaction.GO_ON),
            (NotStored(10164, ""), Reaction.RETRY),
            (Refused(""), Reaction.DECIDE_AGAIN),
            (Unknown(""), Reaction.NEW_TERM),
            (TermLost(), Reaction.LOSE_TERM),
        ],
    )
    def test_each_outcome_has_one_reaction(
        self, outcome: Stored | NotStored | Refused | Unknown | TermLost, reaction: Reaction
    ) -> None:
        assert reactions.to_outcome(outcome) is reaction

    @pytest.mark.parametrize(
        "error", [Unavailable("x"), TimeoutError(), OSError(), nats.errors.ConnectionClosedError()]
    )
    def test_errors_of_the_bus_pass(self, error: Exception) -> None:
        assert reactions.to_error(error) is Reaction.RETRY

    @pytest.mark.parametrize("error", [AssertionError(), KeyError(), ZeroDivisionError()])
    def test_any_other_error_is_a_fault(self, error: Exception) -> None:
        assert reactions.to_error(error) is Reaction.FOLLOW_ANEW


class TestMessages:
    change = Change(NODE_CONTROL, ("n1",), NodeControl(drain=True))
    gone = Change(NODE_CONTROL, ("n2",), None, expected=7)

    def plan(self, explain: bool) -> list[Outgoing]:
        decision = Decision("node", ("n1",), "drained", (self.change, self.gone), {"why": 1}, cause=5, explain=explain)
        return encode.messages("scheduler", Plan((decision,)), 41, NOON)

    def test_changes_come_first_and_their_explanation_last(self) -> None:
        assert [message.subject for message in self.plan(True)] == [
            "steer.node_control.n1",
            "steer.node_control.n2",
            "steer.decision.scheduler.node.n1",
        ]
        assert len(self.plan(False)) == 2

    def test_an_explanation_says_what_was_read_and_what_changed(self) -> None:
        record = self.plan(True)[-1].record
        assert isinstance(record, DecisionRecord)
        assert (record.read_sequence, record.now, record.outcome) == (41, NOON, "drained")
        assert record.changes == ("steer.node_control.n1", "steer.node_control.n2")

    def test_headers_name_the_writer_the_term_and_the_cause(self) -> None:
        one, two, _ = self.plan(True)
        assert one.headers("scheduler", 3) == {"Steer-Service": "scheduler", "Steer-Term": "3", "Steer-Cause": "5"}
        assert two.headers("scheduler", 3) == {
            "Steer-Service": "scheduler",
            "Steer-Term": "3",
            "Steer-Cause": "5",
            "Steer-Operation": "delete",
            "Nats-Expected-Last-Subject-Sequence": "7",
        }
        assert two.body == b""

    @pytest.mark.parametrize("text", ["", "x", "-1", "٣", "1e3", " "])
    def test_a_sequence_that_is_none_counts_as_none(self, text: str) -> None:
        assert encode.sequence_in({"Steer-Restores": text}, "Steer-Restores") == 0


def message(sequence: int, body: bytes, headers: dict[str, str] | None = None) -> Message:
    return Message("steer.node_control.n1", sequence, NOON, headers, body)


GOOD, BAD, TOMBSTONE = b"{}", b"{", {"Steer-Operation": "delete"}


class TestRestoring:
    def test_the_newest_valid_version_is_found_behind_the_bad_ones(self) -> None:
        plan = plan_restoration([message(1, GOOD), message(2, GOOD), message(3, BAD), message(4, BAD)])
        assert plan is not None
        assert [bad.sequence for bad, _ in plan.bad] == [3, 4]
        assert plan.good is not None
        assert plan.good.sequence == plan.restored_sequence == 2

    def test_a_corrected_subject_needs_nothing(self) -> None:
        assert plan_restoration([message(1, BAD), message(2, GOOD)]) is None
        assert plan_restoration([]) is None

    def test_the_notice_comes_first_so_that_it_can_carry_the_fence(self) -> None:
        plan = plan_restoration([message(1, GOOD), message(2, BAD)])
        assert plan is not None
        notice, again = restoring("scheduler", plan, NOON)
        assert notice.subject == "steer.notice.scheduler.record_rejected.node_control.n1"
        assert notice.expected is None
        assert (again.subject, again.body, again.expected, again.restores) == ("steer.node_control.n1", GOOD, 2, 1)

    def test_a_tombstone_is_a_version_too(self) -> None:
        plan = plan_restoration([message(1, GOOD), message(2, b"", TOMBSTONE), message(3, BAD)])
        assert plan is not None
        again = restoring("scheduler", plan, NOON)[1]
        assert (again.record, again.body, again.restores) == (None, b"", 2)

    def test_where_there_never_was_a_valid_one_the_record_is_deleted(self) -> None:
        plan = plan_restoration([message(1, BAD)])
        assert plan is not None
        again = restoring("scheduler", plan, NOON)[1]
        assert (again.record, again.restores, again.expected) == (None, 0, 1)

    def test_a_restore_of_a_restore_names_the_first_origin(self) -> None:
        plan = plan_restoration([message(4, GOOD, {"Steer-Restores": "1"}), message(5, BAD)])
        assert plan is not None
        assert restoring("scheduler", plan, NOON)[1].restores == 1

    def test_the_copy_keeps_the_bytes_that_are_not_text(self) -> None:
        plan = plan_restoration([message(1, b"\xff\xfe")])
        assert plan is not None
        subject, record = rejection(plan, 0)
        assert subject == "steer.rejected.steer.node_control.n1"
        assert (record.body, record.body_encoding, record.body_bytes) == ("//4=", "base64", 2)

    def test_a_large_body_is_cut_in_the_copy(self) -> None:
        plan = plan_restoration([message(1, b"[" * 500_000)])
        assert plan is not None
        _, record = rejection(plan, 0)
        assert (len(record.body), record.body_bytes) == (65_536, 500_000)

    @pytest.mark.parametrize("tail", ["n1", "a.b", "", "Ü.*.>", "x" * 500, "\udcff", ".".join("abc" * 30)])
    def test_the_key_of_a_notice_is_a_key_whatever_the_subject(self, tail: str) -> None:
        key = notice_key("scheduler", f"steer.node_control.{tail}", NODE_CONTROL)
        subjects.NOTICE.check(key)


def test_an_answer_that_restores_nothing_names_itself_and_no_other_message_does() -> None:
    answer = encode.outgoing(Change(NODE_CONTROL, ("n1",), None), restores=0)
    assert answer.version(7, NOON).restores == 7
    assert answer._replace(restores=3).version(7, NOON).restores == 3
    assert answer._replace(restores=None).version(7, NOON).restores == 0
    received: list[dict[str, str] | None] = [{"Steer-Restores": "0"}, {"Steer-Restores": "3"}, {}, None]
    assert [encode.restores_in(headers, 7) for headers in received] == [7, 3, 0, 0]
