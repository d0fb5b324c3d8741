"""What the answer to a bad record must be: the last good version again."""

from collections.abc import Sequence

import pytest

from shared import codec
from shared.invariants.checks import Checks, every_check
from shared.invariants.logged import Breach, Logged
from shared.model.environment import Environment, Replicas
from shared.runtime.encode import DELETE, OPERATION, RESTORES, SERVICE
from shared.service import Version
from shared.subjects import ENVIRONMENT
from tests.unit.invariant_log import ENV, START

GOOD = codec.encode(Environment())
OTHER_GOOD = codec.encode(Environment(replicas=Replicas(min=3)))


def answered(history: Sequence[bytes], restores: int, body: bytes) -> list[Breach]:
    """A record's bodies, `{` those that cannot be read, and then what the scheduler answers; an empty body deletes."""
    checks, subject = Checks(every_check()), ENVIRONMENT.subject(*ENV)
    headers = {SERVICE: "scheduler", RESTORES: str(restores)} | ({} if body else {OPERATION: DELETE})
    messages = [*((text, {}) for text in history), (body, headers)]
    breaches = []
    for sequence, (text, carried) in enumerate(messages, start=1):
        record = codec.decode(ENVIRONMENT, ENV, text) if text not in (b"{", b"") else None
        version = None if text == b"{" else Version(ENVIRONMENT, ENV, sequence, record, START)
        breaches += checks.take([Logged(sequence, START, subject, carried, text, version)])
    return breaches


@pytest.mark.parametrize(
    ("history", "restores", "body"),
    [
        ((GOOD, b"{"), 1, GOOD),
        ((GOOD, OTHER_GOOD, b"{", b"{"), 2, OTHER_GOOD),
        ((b"{",), 0, b""),
        ((GOOD, OTHER_GOOD), 1, GOOD),  # the second was refused for what it says
    ],
)
def test_the_last_good_version_rules_again(history: Sequence[bytes], restores: int, body: bytes) -> None:
    assert answered(history, restores, body) == []


@pytest.mark.parametrize(
    ("history", "restores", "body"),
    [
        ((GOOD, OTHER_GOOD, b"{"), 1, GOOD),
        ((GOOD, b"{"), 1, OTHER_GOOD),
        ((GOOD, b"{"), 0, b""),
        ((b"{",), 0, GOOD),
    ],
    ids=["an older one", "another than it says", "none, though there is one", "one that never was"],
)
def test_an_answer_that_is_not_the_last_good_version_is_found(
    history: Sequence[bytes], restores: int, body: bytes
) -> None:
    (breach,) = answered(history, restores, body)
    assert (breach.invariant, breach.sequence) == ("11", len(history) + 1)
