"""Every invariant that the log alone shows, asked of one commit after the other."""

from collections.abc import Sequence

from shared.invariants.batches import BatchesAreWhole
from shared.invariants.builds import BuildsAreSafe
from shared.invariants.capacity import reservations_fit
from shared.invariants.carrying import carried_functions_keep_a_worker
from shared.invariants.deadlines import DeadlinesAreKept
from shared.invariants.digest import RoutesAddUp
from shared.invariants.endings import drained_before_stopped
from shared.invariants.logged import Breach, Logged
from shared.invariants.moment import Check, Moment
from shared.invariants.pools import pools_have_their_members
from shared.invariants.replicas import desired_only_moves_on, no_more_than_wanted, one_incarnation_of_a_slot
from shared.invariants.restores import RestoresRepeat
from shared.invariants.routing import routes_say_what_was_known
from shared.invariants.serving import promoted_when_healthy, serves_on
from shared.invariants.terms import TermsNeverGoBack
from shared.invariants.view import View


def every_check() -> tuple[Check, ...]:
    """Some keep count of what they have seen: they are made anew for each log."""
    return (
        TermsNeverGoBack(),
        BatchesAreWhole(),
        RoutesAddUp(),
        BuildsAreSafe(),
        DeadlinesAreKept(),
        RestoresRepeat(),
        desired_only_moves_on,
        reservations_fit,
        no_more_than_wanted,
        one_incarnation_of_a_slot,
        serves_on,
        promoted_when_healthy,
        drained_before_stopped,
        pools_have_their_members,
        carried_functions_keep_a_worker,
        routes_say_what_was_known,
    )


class Checks:
    """`take` each commit as it is stored, or a message that was published alone."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks
        self.view = View()

    def take(self, messages: Sequence[Logged]) -> list[Breach]:
        """What does not hold any more with these."""
        moment = Moment(self.view, messages)
        return [breach for check in self._checks for breach in check(moment)]
