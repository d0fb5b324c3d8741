"""Opening a term: from then on every commit of an earlier term of this service is refused by the server.

The term message expects the last term that the candidate has seen; its body names the lease. A candidate that has lost
its lease does not publish it. It decides nothing before its follower has received its own term message: by then
everything that an earlier leader has stored is known.
"""

from datetime import UTC, datetime

import structlog

from shared import subjects
from shared.model.service import Term
from shared.runtime.answers import Outcome, Stored
from shared.runtime.commit import Committer
from shared.runtime.encode import Outgoing, outgoing
from shared.runtime.lease import Lease
from shared.service import Change

log = structlog.get_logger(__name__)


def term_message(service: str, holder: str, lease_revision: int, last_term: int, opened_at: datetime) -> Outgoing:
    """The message; `last_term` is the sequence of the newest term message received, 0 for none."""
    record = Term(holder=holder, lease_revision=lease_revision, opened_at=opened_at)
    return outgoing(Change(subjects.TERM, (service,), record, expected=last_term))


async def open_term(committer: Committer, service: str, holder: str, lease: Lease, last_term: int) -> Outcome | None:
    """Open a term; `Stored` when it is open, None when the lease was lost before."""
    if not lease.held:
        return None
    # `opened_at` is for people: no decision reads it.
    message = term_message(service, holder, lease.epoch, last_term, datetime.now(UTC))
    outcome = await committer.open_term(message)
    if isinstance(outcome, Stored):
        committer.term = outcome.first
        log.info("a term is opened", service=service, term=outcome.first, holder=holder)
    return outcome
