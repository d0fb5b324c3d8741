"""The report of real faults says what was found: a loss is told, and nothing is told of the machine."""

from dataclasses import replace
from datetime import UTC, date, datetime

from shared.runtime.follower import Message
from tests.faults.audit import Findings, lost
from tests.faults.ledger import Ledger
from tests.faults.report import Part, Report, Simulated, markdown
from tests.faults.scene import Injected
from tests.faults.secured import Secured

AT = datetime(2030, 1, 1, tzinfo=UTC)
KILLED = Injected("kill -9 of a service's leader", "scheduler", AT, 3.25, 0.125, "scheduler")
RESTARTED = Injected("restart of a server", "the only one", AT, 1.5, 0.75)
FOUND = Findings(
    messages=1234,
    acknowledged=321,
    refused=2,
    rejected=1,
    lost=(),
    violations=(),
    decisions_again=99,
    differences=(),
    leaderless_seconds={KILLED: 2.5},
    terms={"scheduler": 2},
    settled_seconds=1.0,
)
PART = Part("One server", 60.0, 3, (RESTARTED, KILLED), ("clock jumps: no C compiler",), {"deploy": 7}, FOUND)
REPORT = Report(
    date(2030, 1, 1), {"nats-server": "1.2.3"}, 2, 1, (PART,), Secured(12, 92, 892, (), 7.5), Simulated(100, (), 50.0)
)


def message(sequence: int, subject: str, body: bytes) -> Message:
    return Message(subject, sequence, AT, None, body)


def test_an_acknowledged_write_that_is_not_in_the_log_under_its_sequence_is_lost() -> None:
    ledger = Ledger(acknowledged={1: ("steer.a", b"1"), 2: ("steer.b", b"2"), 3: ("steer.c", b"3")})
    log = [message(1, "steer.a", b"1"), message(2, "steer.b", b"another"), message(4, "steer.c", b"3")]
    assert lost(log, ledger) == ["steer.b at 2", "steer.c at 3"]


def test_silence_lasts_from_the_blow_to_the_first_answer_and_to_the_end() -> None:
    ledger = Ledger(answered=[1.0, 2.0, 5.0, 5.5])
    assert ledger.longest_silence(1.5, 5.25) == 3.0
    assert ledger.longest_silence(5.6, 9.6) == 4.0


def test_the_report_gives_each_fault_its_row_and_names_no_machine() -> None:
    text = markdown(REPORT)
    assert "| restart of a server | the only one | 1 | 1.5 s |  | 0.8 s |" in text
    assert "| kill -9 of a service's leader | scheduler | 1 | 3.2 s | 2.5 s | 0.1 s |" in text
    assert "**0**" in text and "clock jumps: no C compiler" in text
    assert markdown(REPORT) == text
    assert REPORT.holds


def test_what_does_not_hold_is_told() -> None:
    found = replace(FOUND, lost=("steer.b at 2",), violations=("1: steer.c at 9: is of an old term",))
    bad = replace(REPORT, parts=(replace(PART, findings=found),))
    text = markdown(bad)
    assert not bad.holds
    assert "* lost: steer.b at 2" in text and "* violated: 1: steer.c at 9" in text
    assert not replace(REPORT, simulated=Simulated(100, (7,), 50.0)).holds
    assert not replace(REPORT, secured=replace(REPORT.secured, wrong=("viewer: steer.a",))).holds
