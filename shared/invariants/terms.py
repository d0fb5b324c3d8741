"""1: the decisions of two leaders do not interleave: per service, the terms of what is stored never go back.

What carries an older term than the newest one that was opened was not fenced.
"""

from collections.abc import Iterator

from shared.invariants.logged import Breach
from shared.invariants.moment import Moment
from shared.runtime.encode import SERVICE, TERM, sequence_in
from shared.subjects import TERM as TERM_KIND


class TermsNeverGoBack:
    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for message in moment.messages:
            if message.subject.startswith(f"{TERM_KIND.prefix}."):
                self._newest[message.subject.removeprefix(f"{TERM_KIND.prefix}.")] = message.sequence
            service, term = message.headers.get(SERVICE, ""), sequence_in(message.headers, TERM)
            if not service or not term:
                continue
            if term < self._newest.get(service, 0):
                detail = f"is of term {term} of {service}, though {self._newest[service]} was opened"
                yield Breach("1", message.sequence, message.subject, detail)
            else:
                self._newest[service] = term
