"""Every pass of a test's world is made again from what its explanations say, by a state that has heard nothing.

It knows the records alone: telemetry that a decision rests on and does not record shows as a difference.
"""

from datetime import datetime
from typing import Any

from services.cli.replaying import differs
from shared import codec
from shared.runtime import encode
from shared.service import Plan, Service, Version
from shared.subjects import DECISION


class MadeAgain:
    """`fold` what the world folds; `check` each plan before it is committed."""

    def __init__(self, service: Service[Any]) -> None:
        self._service = service
        self._state = service.new_state()

    def fold(self, version: Version) -> None:
        self._service.fold(self._state, version)

    def check(self, plan: Plan, now: datetime) -> None:
        """Whatever is explained comes out once more, with its changes."""
        if not any(decision.explain for decision in plan.decisions):
            return
        outgoing = encode.messages(self._service.name, plan, 0, now)
        commit = [Version(each.kind, each.key, 0, _stored(each), now) for each in outgoing]
        self._service.recall(self._state, commit, now)
        again = encode.messages(self._service.name, self._service.decide(self._state, now), 0, now)
        stored, found = ({each.subject: each.body for each in messages} for messages in (outgoing, again))
        explained = [decision for decision in plan.decisions if decision.explain]
        for decision in explained:
            told = DECISION.subject(self._service.name, decision.about, *decision.key)
            for subject in (told, *(change.subject for change in decision.changes)):
                assert not (difference := differs(subject, stored, found)), difference


def _stored(message: encode.Outgoing) -> Any:
    """As a reader of the log finds it: an observation is JSON by then."""
    return (
        codec.decode(DECISION, message.key, message.body)
        if message.kind is DECISION and message.body
        else message.record
    )
