"""A commit lies in the log as a whole: its messages are next to each other, and its last one says so.

Where versions were trimmed in between, nothing is concluded.
"""

from collections.abc import Iterator

from shared.invariants.logged import Breach, Logged
from shared.invariants.moment import Moment
from shared.runtime.encode import sequence_in

BATCH, BATCH_SEQUENCE, BATCH_COMMIT = "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"


class BatchesAreWhole:
    def __init__(self) -> None:
        self._previous: Logged | None = None

    def __call__(self, moment: Moment) -> Iterator[Breach]:
        for message in moment.messages:
            previous, self._previous = self._previous, message
            if previous is not None and previous.sequence == message.sequence - 1:
                yield from _between(previous, message)


def _between(previous: Logged, message: Logged) -> Iterator[Breach]:
    number, before = (sequence_in(each.headers, BATCH_SEQUENCE) for each in (message, previous))
    together = previous.headers.get(BATCH) == message.headers.get(BATCH)
    if number > 1 and not (together and before == number - 1):
        detail = f"is message {number} of a batch whose others are not before it"
        yield Breach("batch", message.sequence, message.subject, detail)
    if before and not together and BATCH_COMMIT not in previous.headers:
        detail = f"is the last of a batch, message {before}, and does not commit it"
        yield Breach("batch", previous.sequence, previous.subject, detail)
