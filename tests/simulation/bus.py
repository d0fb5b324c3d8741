"""The way between a process and the log: it takes time, and it fails in the ways that a leader must survive.

A request is on its way, is decided on at the server, and is answered. It may be refused because another check of the
same subject is still in process (a replicated stream), its answer may be lost although it was stored, and it may land
long after its sender has given up: closing a connection calls nothing back.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from shared.runtime.answers import Outcome, Unknown, judge
from shared.runtime.encode import EXPECTED, EXPECTED_SUBJECT
from shared.subjects import STREAM

from .clock import Timeline
from .faults import Rates
from .log import CONCURRENT_CHECK, Log, Refused
from .wire import Message

TIMEOUT_SECONDS = 2.0
"""How long a sender waits for an answer before it calls the outcome unknown."""


Answer = Mapping[str, Any] | None
"""The acknowledgement as the server writes it; None = no answer in time: stored, stored later, or never."""


class Bus:
    def __init__(self, log: Log, timeline: Timeline, random: Random, rates: Rates, *, replicated: bool) -> None:
        self._log = log
        self._timeline = timeline
        self._random = random
        self._replicated = replicated
        self._in_check: dict[str, int] = {}
        self.rates = rates
        self.fate: Callable[[Sequence[Message]], float | None] = lambda messages: None
        """A history may say after how many seconds a request lands, unanswered. None = as the seed has it."""

    def request(self, messages: Sequence[Message], answer: Callable[[Answer], None]) -> None:
        """Publish: one message plainly, several as one batch. `answer` is called once."""
        travel = self._random.uniform(0.0002, 0.003)
        decided = self.fate(messages)
        late = decided is not None or self._random.random() < self.rates.late_landing
        if late:
            travel = decided or self._random.uniform(TIMEOUT_SECONDS * 0.9, TIMEOUT_SECONDS * 4)
        lost = late or self._random.random() < self.rates.lost_answer
        dropped = not late and self._random.random() < self.rates.lost_request
        answered = [False]

        def reply(outcome: Answer) -> None:
            if not answered[0]:
                answered[0] = True
                answer(outcome)

        if not dropped:
            self._timeline.after(travel, lambda: self._arrive(messages, reply, lost))
        self._timeline.after(TIMEOUT_SECONDS, lambda: reply(None))

    def _arrive(self, messages: Sequence[Message], reply: Callable[[Answer], None], lost: bool) -> None:
        """At the server. On a replicated stream a checked subject is taken while its check is agreed on."""
        checked = [m.headers.get(EXPECTED_SUBJECT, m.subject) for m in messages if EXPECTED in m.headers]
        refused = self._random.random() < self.rates.refused
        if refused or (self._replicated and any(self._in_check.get(subject) for subject in checked)):
            self._answer(reply, _error(CONCURRENT_CHECK), lost)
        elif self._replicated:
            for subject in checked:
                self._in_check[subject] = self._in_check.get(subject, 0) + 1
            self._timeline.after(
                self._random.uniform(0.0003, 0.004), lambda: self._agreed(messages, checked, reply, lost)
            )
        else:
            self._store(messages, reply, lost)

    def _agreed(
        self, messages: Sequence[Message], checked: Sequence[str], reply: Callable[[Answer], None], lost: bool
    ) -> None:
        for subject in checked:
            self._in_check[subject] -= 1
        self._store(messages, reply, lost)

    def _store(self, messages: Sequence[Message], reply: Callable[[Answer], None], lost: bool) -> None:
        try:
            outcome: Answer = {"stream": STREAM, "seq": self._log.publish_batch(messages)}
        except Refused as refusal:
            outcome = _error(refusal.code)
        self._answer(reply, outcome, lost)

    def _answer(self, reply: Callable[[Answer], None], outcome: Answer, lost: bool) -> None:
        if not lost:
            self._timeline.after(self._random.uniform(0.0002, 0.003), lambda: reply(outcome))


def outcome_of(answer: Answer, count: int, has_expectations: bool) -> Outcome:
    """What the sender of `count` messages makes of an answer."""
    return Unknown("no answer in time") if answer is None else judge(answer, count, has_expectations)


def _error(code: int) -> Answer:
    return {"error": {"code": 400, "err_code": code, "description": "refused"}}
