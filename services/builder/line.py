"""Whose turn it is: fair by owner, first come first served within an owner.

Next is the owner who holds the fewest workers; of those the one who was served longest ago; of those the one who came
first. A build whose attempt was lost goes before all others: it had its turn. An owner at the limit waits. Pure; a pass
takes its turns on counters of its own.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from sortedcontainers import SortedSet

Item = tuple[str, ...]
"""`("build", project, app, id)` or `("lease", pool, id)`."""

Ticket = tuple[int, int, Item]
"""`(0 for a lost attempt, else 1; the sequence at which it came; what waits)`: its order within the owner."""

_Turn = tuple[int, int, int, int, str, Item]
"""`(0 for a lost attempt, workers held, when served, when it came, owner, what waits)`: the least is next."""


class Line:
    """Those who wait for a worker of one pool."""

    def __init__(self) -> None:
        self.by_owner: dict[str, SortedSet[Ticket]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_owner.values()))

    def join(self, owner: str, ticket: Ticket) -> None:
        self.by_owner.setdefault(owner, SortedSet()).add(ticket)

    def leave(self, owner: str, ticket: Ticket) -> None:
        """Whoever is not there has left already."""
        tickets = self.by_owner.get(owner)
        if tickets is not None:
            tickets.discard(ticket)
            if not tickets:
                del self.by_owner[owner]

    def eligible(self, held: Mapping[str, int], limit: int | None) -> int:
        """How many could run now if there were workers enough."""
        if limit is None:
            return len(self)
        return sum(min(len(tickets), max(0, limit - held.get(owner, 0))) for owner, tickets in self.by_owner.items())


class Turns:
    """Hands out turns. `take` says who is next, and counts that as served; `skip` ends the turns of an owner."""

    def __init__(
        self, line: Line, held: Mapping[str, int], served: Callable[[str], int], limit: int | None, now: int = 0
    ) -> None:
        self._limit = limit
        self._now = now
        self._tickets: dict[str, Iterator[Ticket]] = {}
        self._heap: list[_Turn] = []
        for owner, tickets in line.by_owner.items():
            self._tickets[owner] = iter(tickets)
            self._next(owner, held.get(owner, 0), served(owner), self._heap.append)
        heapify(self._heap)

    def peek(self) -> tuple[str, Item] | None:
        """The owner whose turn it is, and what waits; None when nobody may have one."""
        return (self._heap[0][4], self._heap[0][5]) if self._heap else None

    def take(self) -> None:
        """The turn is used."""
        _, held, _, _, owner, _ = heappop(self._heap)
        self._next(owner, held + 1, self._now, lambda entry: heappush(self._heap, entry))

    def skip(self) -> None:
        """The turn cannot be used: nothing of this owner goes before what came first."""
        heappop(self._heap)

    def pass_over(self) -> None:
        """What waits there does not, after all: the owner's turn goes to the next of it."""
        _, held, served, _, owner, _ = heappop(self._heap)
        self._next(owner, held, served, lambda entry: heappush(self._heap, entry))

    def all(self) -> Iterator[tuple[str, Item]]:
        """Every turn to come, in order, as if nothing that runs ever ended."""
        while (turn := self.peek()) is not None:
            yield turn
            self.take()

    def _next(self, owner: str, held: int, served: int, push: Callable[[_Turn], None]) -> None:
        if self._limit is not None and held >= self._limit:
            return
        ticket = next(self._tickets[owner], None)
        if ticket is not None:
            push((ticket[0], held, served, ticket[1], owner, ticket[2]))
