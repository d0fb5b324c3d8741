"""What must hold at every point of the log, as far as the log alone shows it: pure.

* The terms of a service never go back: what carries an older term than the newest one opened was not fenced.
* A commit lies in the log as a whole: its messages are next to each other, and its last one says so.
* Every version of the routes has the digest that its manifest names, however the records came.
"""

from collections.abc import Iterable, Iterator

from shared import subjects
from shared.runtime import encode
from shared.runtime.encode import sequence_in
from shared.runtime.follower import Message
from shared.runtime.route_table import RouteTable

BATCH, BATCH_SEQUENCE, BATCH_COMMIT = "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"


def violations(messages: Iterable[Message]) -> list[str]:
    """Every place where something does not hold, in words. `messages` are the log from its beginning, in order."""
    log = list(messages)
    return [*_terms(log), *_batches(log), *_routes(log)]


def _terms(log: Iterable[Message]) -> Iterator[str]:
    newest: dict[str, int] = {}
    for message in log:
        headers = message.headers or {}
        service, term = headers.get(encode.SERVICE, ""), sequence_in(headers, encode.TERM)
        if message.subject.startswith(f"{subjects.TERM.prefix}."):
            newest[message.subject.rpartition(".")[2]] = message.sequence
        elif service and term and newest.get(service, term) != term:
            yield f"{message.subject} at {message.sequence} is of term {term}, though {newest[service]} was opened"


def _batches(log: Iterable[Message]) -> Iterator[str]:
    previous: Message | None = None
    for message in log:
        number = sequence_in(message.headers, BATCH_SEQUENCE)
        before = sequence_in(previous.headers, BATCH_SEQUENCE) if previous is not None else 0
        is_next = previous is not None and (previous.headers or {}).get(BATCH) == (message.headers or {}).get(BATCH)
        trimmed = previous is None or previous.sequence != message.sequence - 1  # versions are trimmed one by one
        if number > 1 and not trimmed and not (is_next and before == number - 1):
            yield f"{message.subject} at {message.sequence} is message {number} of a batch whose others are not before it"
        if (
            previous is not None
            and before
            and not trimmed
            and not is_next
            and BATCH_COMMIT not in (previous.headers or {})
        ):
            yield f"the batch that ends at {message.sequence - 1} was not committed there"
        previous = message


def _routes(log: Iterable[Message]) -> Iterator[str]:
    table = RouteTable()
    prefix = subjects.ROUTE_SUBJECTS.removesuffix(">")
    for message in log:
        if message.subject.startswith(prefix) and table.take(message) and not table.verified:
            yield f"route version {table.number} at {message.sequence} has not the digest that its manifest names"
